//! Compares what the kernel and the stack did in each step, and names each difference.

use std::fmt;

use super::record::{Outcome, Reaction, Sent};
use super::sequence::Sequence;

/// A part of a packet in which the two hosts differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field {
    Device,
    From,
    To,
    HopLimit,
    Service,
    FlowLabel,
    DontFragment,
    Intact,
    Options,
    Fragment,
    /// The four bytes behind the checksum of an ICMP message: a pointer, an MTU, or a gateway.
    Rest,
    /// The length of the payload.
    Len,
    Payload,
}

/// The fields that are judged one by one, because they do not affect other fields.
const ALONE: [Field; 5] = [Field::Service, Field::FlowLabel, Field::DontFragment, Field::Options, Field::From];

/// A difference between the two hosts in one step.
#[derive(Debug, Clone)]
pub(crate) enum Difference {
    /// The call has different results.
    Call { step: usize, kernel: Outcome, stack: Outcome },
    /// The packets at the same place differ in these fields.
    Packet { step: usize, kernel: Box<Sent>, stack: Box<Sent>, fields: Vec<Field> },
    /// Only the kernel sent a further packet.
    OnlyKernel { step: usize, sent: Box<Sent> },
    /// Only the stack sent a further packet.
    OnlyStack { step: usize, sent: Box<Sent> },
}

/// What becomes of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing explains it.
    Unexplained,
    /// It is explained, and has no further effect.
    Continue,
    /// It is explained, and what follows from it cannot be compared.
    Stop,
}

impl Difference {
    pub(crate) fn step(&self) -> usize {
        match self {
            Self::Call { step, .. }
            | Self::Packet { step, .. }
            | Self::OnlyKernel { step, .. }
            | Self::OnlyStack { step, .. } => *step,
        }
    }

    /// The kind of a difference, without the addresses and lengths of one sequence.
    pub(crate) fn kind(&self) -> String {
        let name = |sent: &Sent| match sent.icmp() {
            Some((kind, code)) => format!("icmp {kind} {code}"),
            None => format!("protocol {}", sent.protocol),
        };
        let result = |outcome: &Outcome| match outcome {
            Outcome::Received(..) => "a datagram".to_owned(),
            Outcome::Done | Outcome::Empty | Outcome::Failed(_) | Outcome::NoSocket => format!("{outcome:?}"),
        };
        match self {
            Self::Call { kernel, stack, .. } => format!("call: {}, {}", result(kernel), result(stack)),
            Self::Packet { kernel, stack, fields, .. } => format!("{} and {} {fields:?}", name(kernel), name(stack)),
            Self::OnlyKernel { sent, .. } => format!("only the kernel: {}", name(sent)),
            Self::OnlyStack { sent, .. } => format!("only the stack: {}", name(sent)),
        }
    }
}

/// The fields in which two packets differ.
fn fields(one: &Sent, other: &Sent) -> Vec<Field> {
    let is_icmp = one.icmp().is_some() && other.icmp().is_some();
    let rest = |sent: &Sent| sent.payload.get(4..8).map(<[u8]>::to_vec);
    let behind =
        |sent: &Sent| if is_icmp { sent.payload.get(8..).map(<[u8]>::to_vec) } else { Some(sent.payload.clone()) };
    let all = [
        (one.device != other.device, Field::Device),
        (one.from != other.from, Field::From),
        (one.to != other.to, Field::To),
        (one.hop_limit != other.hop_limit, Field::HopLimit),
        (one.service != other.service, Field::Service),
        (one.flow_label != other.flow_label, Field::FlowLabel),
        (one.dont_fragment != other.dont_fragment, Field::DontFragment),
        (one.intact != other.intact, Field::Intact),
        (one.options != other.options, Field::Options),
        (one.fragment != other.fragment, Field::Fragment),
        (is_icmp && rest(one) != rest(other), Field::Rest),
        (one.payload.len() != other.payload.len(), Field::Len),
        (one.payload.len() == other.payload.len() && behind(one) != behind(other), Field::Payload),
    ];
    all.into_iter().filter(|(differs, _)| *differs).map(|(_, field)| field).collect()
}

/// Compares what two hosts did. Calls `judge` for each difference, until `judge` does not explain one or stops the comparison.
/// Returns the difference that nothing explains.
pub(crate) fn compare(
    kernel: &[Reaction],
    stack: &[Reaction],
    mut judge: impl FnMut(&Difference) -> Verdict,
) -> Option<Difference> {
    for (step, (theirs, ours)) in kernel.iter().zip(stack).enumerate() {
        let mut found = Vec::new();
        if let (Some(kernel), Some(stack)) = (&theirs.outcome, &ours.outcome)
            && kernel != stack
        {
            found.push(Difference::Call { step, kernel: kernel.clone(), stack: stack.clone() });
        }
        // Errors and forwarded packets may leave in either order.
        let (mut kernel_left, mut stack_left) = (theirs.sent.clone(), ours.sent.clone());
        kernel_left.retain(|sent| match stack_left.iter().position(|other| other == sent) {
            Some(at) => {
                stack_left.remove(at);
                false
            }
            None => true,
        });
        for kernel in kernel_left {
            let is_alike = |stack: &Sent| (stack.protocol, stack.icmp()) == (kernel.protocol, kernel.icmp());
            let Some(at) = stack_left.iter().position(is_alike) else {
                found.push(Difference::OnlyKernel { step, sent: Box::new(kernel) });
                continue;
            };
            let stack = stack_left.remove(at);
            let (alone, together): (Vec<Field>, Vec<Field>) =
                fields(&kernel, &stack).into_iter().partition(|field| ALONE.contains(field));
            for fields in alone.into_iter().map(|field| vec![field]).chain([together]).filter(|part| !part.is_empty()) {
                let (kernel, stack) = (Box::new(kernel.clone()), Box::new(stack.clone()));
                found.push(Difference::Packet { step, kernel, stack, fields });
            }
        }
        found.extend(stack_left.into_iter().map(|sent| Difference::OnlyStack { step, sent: Box::new(sent) }));
        for difference in found {
            match judge(&difference) {
                Verdict::Unexplained => return Some(difference),
                Verdict::Continue => {}
                Verdict::Stop => return None,
            }
        }
    }
    None
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {}: ", self.step() + 1)?;
        match self {
            Self::Call { kernel, stack, .. } => {
                write!(f, "the call returns {kernel:?} from the kernel, {stack:?} from the stack")
            }
            Self::Packet { kernel, stack, fields, .. } => {
                write!(f, "packets differ in {fields:?}\n  kernel {kernel}\n  stack  {stack}")
            }
            Self::OnlyKernel { sent, .. } => write!(f, "only the kernel sends\n  kernel {sent}"),
            Self::OnlyStack { sent, .. } => write!(f, "only the stack sends\n  stack  {sent}"),
        }
    }
}

/// The steps of a sequence, with what both hosts did in each step.
pub(crate) fn table(sequence: &Sequence, kernel: &[Reaction], stack: &[Reaction]) -> String {
    let mut text = String::new();
    for (step, act) in sequence.steps.iter().enumerate() {
        text += &format!("{}: {act}\n", step + 1);
        for (name, reactions) in [("kernel", kernel), ("stack ", stack)] {
            let Some(Reaction { outcome, sent }) = reactions.get(step) else { continue };
            match outcome {
                Some(Outcome::Received(from, bytes)) => {
                    text += &format!("  {name} {} bytes from {from}\n", bytes.len());
                }
                Some(outcome) => text += &format!("  {name} {outcome:?}\n"),
                None => {}
            }
            text.extend(sent.iter().map(|sent| format!("  {name} {sent}\n")));
        }
    }
    text
}
