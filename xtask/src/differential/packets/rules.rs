//! The known differences between the kernel and the stack. Each rule recognises one of them and has a line in
//! `docs/linux-differences.md`, which gives the RFC and the reason.

use std::net::IpAddr;

use rustix::io::Errno;

use super::build::{FRAGMENT, PROTOCOL_UDP};
use super::compare::{Difference, Field, Verdict};
use super::place::{LINK_LOCAL, Place};
use super::record::{Outcome, Sent};
use super::sequence::{Act, Body, Call, CallKind, Cut, Damage, Extension, Packet, Sequence};

/// The sequence in which a difference was found.
pub(crate) struct Context<'a> {
    pub(crate) sequence: &'a Sequence,
}

/// A rule. The name is the first column of its line in the document.
pub(crate) struct Rule {
    pub(crate) name: &'static str,
    judge: fn(&Context<'_>, &Difference) -> Verdict,
}

/// All rules, in the order in which they are tried.
pub(crate) const RULES: [Rule; 38] = [
    Rule { name: "flow-label", judge: flow_label },
    Rule { name: "udp-fragments", judge: udp_fragments },
    Rule { name: "error-service", judge: error_service },
    Rule { name: "redirect-quote", judge: redirect_quote },
    Rule { name: "error-rate", judge: error_rate },
    Rule { name: "redirect-for-error", judge: redirect_for_error },
    Rule { name: "error-source", judge: error_source },
    Rule { name: "soft-error", judge: soft_error },
    Rule { name: "error-class", judge: error_class },
    Rule { name: "too-big-check", judge: too_big_check },
    Rule { name: "udp-trim", judge: udp_trim },
    Rule { name: "security-option", judge: security_option },
    Rule { name: "answer-options", judge: answer_options },
    Rule { name: "recorded-options", judge: recorded_options },
    Rule { name: "source-route", judge: source_route },
    Rule { name: "class-e", judge: class_e },
    Rule { name: "report-without-route", judge: report_without_route },
    Rule { name: "nested-fragment", judge: nested_fragment },
    Rule { name: "unknown-fragment", judge: unknown_fragment },
    Rule { name: "cut-extension", judge: cut_extension },
    Rule { name: "udp-jumbogram", judge: udp_jumbogram },
    Rule { name: "oversize-fragment", judge: oversize_fragment },
    Rule { name: "uneven-fragment", judge: uneven_fragment },
    Rule { name: "empty-fragment", judge: empty_fragment },
    Rule { name: "contained-fragment", judge: contained_fragment },
    Rule { name: "own-source", judge: own_source },
    Rule { name: "hop-by-hop", judge: hop_by_hop },
    Rule { name: "segment-routing", judge: segment_routing },
    Rule { name: "option-form", judge: option_form },
    Rule { name: "source-broadcast", judge: source_broadcast },
    Rule { name: "other-broadcast", judge: other_broadcast },
    Rule { name: "network-address", judge: network_address },
    Rule { name: "echo-code", judge: echo_code },
    Rule { name: "link-local-forward", judge: link_local_forward },
    Rule { name: "link-local-source", judge: link_local_source },
    Rule { name: "solicited-node", judge: solicited_node },
    Rule { name: "multicast-all", judge: multicast_all },
    Rule { name: "timestamp-reply", judge: timestamp_reply },
];

/// Returns the verdict of the first rule that explains a difference, and the place of the rule.
pub(crate) fn judge(context: &Context<'_>, difference: &Difference) -> (Verdict, Option<usize>) {
    let verdicts = RULES.iter().map(|rule| (rule.judge)(context, difference));
    let found = verdicts.enumerate().find(|(_, verdict)| *verdict != Verdict::Unexplained);
    found.map_or((Verdict::Unexplained, None), |(place, verdict)| (verdict, Some(place)))
}

fn when(explained: bool, verdict: Verdict) -> Verdict {
    if explained { verdict } else { Verdict::Unexplained }
}

/// The packet that arrived in the step of a difference.
fn arrived<'a>(context: &Context<'a>, difference: &Difference) -> Option<&'a Packet> {
    match context.sequence.steps.get(difference.step())? {
        Act::Packet(packet) => Some(packet),
        Act::Expire => before(context, difference).last(),
        Act::Call(_) => None,
    }
}

/// The packets that arrived until a difference.
fn before<'a>(context: &Context<'a>, difference: &Difference) -> impl Iterator<Item = &'a Packet> {
    context.sequence.steps[..=difference.step()].iter().filter_map(|act| match act {
        Act::Packet(packet) => Some(packet),
        Act::Call(_) | Act::Expire => None,
    })
}

/// The packets of the kernel and of the stack, if they differ only in this field.
fn only_in(difference: &Difference, field: Field) -> Option<(&Sent, &Sent)> {
    match difference {
        Difference::Packet { kernel, stack, fields, .. } if fields[..] == [field] => Some((kernel, stack)),
        Difference::Packet { .. }
        | Difference::Call { .. }
        | Difference::OnlyKernel { .. }
        | Difference::OnlyStack { .. } => None,
    }
}

fn only_kernel(difference: &Difference) -> Option<&Sent> {
    if let Difference::OnlyKernel { sent, .. } = difference { Some(sent) } else { None }
}

fn only_stack(difference: &Difference) -> Option<&Sent> {
    if let Difference::OnlyStack { sent, .. } = difference { Some(sent) } else { None }
}

fn is_redirect(sent: &Sent) -> bool {
    matches!((sent.icmp(), sent.from.is_ipv4()), (Some((5, _)), true) | (Some((137, _)), false))
}

/// Whether the packet has an IPv4 option of this type.
fn has_option(packet: &Packet, kind: u8) -> bool {
    packet.options.contains(&kind)
}

/// The stack's datagrams have a flow label. The kernel's have none with the setting of this test.
fn flow_label(_: &Context<'_>, difference: &Difference) -> Verdict {
    let found = only_in(difference, Field::FlowLabel);
    when(
        found.is_some_and(|(kernel, stack)| kernel.flow_label == 0 && stack.protocol == PROTOCOL_UDP),
        Verdict::Continue,
    )
}

/// The kernel discovers the path MTU with datagrams. The stack lets routers fragment them.
fn udp_fragments(context: &Context<'_>, difference: &Difference) -> Verdict {
    let sends =
        matches!(context.sequence.steps.get(difference.step()), Some(Act::Call(Call { kind: CallKind::Send(..), .. })));
    let found = only_in(difference, Field::DontFragment);
    when(sends && found.is_some_and(|(kernel, stack)| kernel.dont_fragment && !stack.dont_fragment), Verdict::Continue)
}

/// The kernel's errors have the type of service of the packet that caused them, except its precedence.
fn error_service(context: &Context<'_>, difference: &Difference) -> Verdict {
    let Some((kernel, stack)) = only_in(difference, Field::Service) else { return Verdict::Unexplained };
    let Some(packet) = arrived(context, difference) else { return Verdict::Unexplained };
    let is_error = kernel.is_error() && !context.sequence.v6;
    when(is_error && stack.service == 0xc0 && kernel.service == 0xc0 | packet.service & 0x1e, Verdict::Continue)
}

/// The kernel's redirects quote the packet as it leaves, with a smaller hop limit.
fn redirect_quote(_: &Context<'_>, difference: &Difference) -> Verdict {
    let Some((kernel, stack)) = only_in(difference, Field::Payload) else { return Verdict::Unexplained };
    let quoted = |sent: &Sent| {
        let mut quote = sent.payload.get(8..).unwrap_or_default().to_vec();
        let (hops, sum) = (quote[8], quote[10..12].to_vec());
        quote[8..12].fill(0);
        (quote, hops, sum)
    };
    if !is_redirect(kernel) || !kernel.from.is_ipv4() || kernel.payload.len() < 28 {
        return Verdict::Unexplained;
    }
    let ((kernel_quote, kernel_hops, _), (stack_quote, stack_hops, _)) = (quoted(kernel), quoted(stack));
    when(kernel_quote[12..] == stack_quote[12..] && kernel_hops + 1 == stack_hops, Verdict::Continue)
}

/// The kernel sends fewer redirects, and fewer reports of a missing route, to the same host in a short time.
fn error_rate(context: &Context<'_>, difference: &Difference) -> Verdict {
    let is_limited = |sent: &Sent| is_redirect(sent) || (sent.icmp() == Some((3, 0)) && sent.from.is_ipv4());
    let found = only_stack(difference).is_some_and(is_limited);
    when(found && before(context, difference).count() > 1, Verdict::Continue)
}

/// The kernel checks the security label of an option.
fn security_option(context: &Context<'_>, difference: &Difference) -> Verdict {
    const CIPSO: u8 = 0x86;
    when(before(context, difference).any(|packet| has_option(packet, CIPSO)), Verdict::Stop)
}

/// The kernel's answers repeat options of the packet that they answer.
fn answer_options(context: &Context<'_>, difference: &Difference) -> Verdict {
    let found = only_in(difference, Field::Options).or_else(|| only_in(difference, Field::Len));
    let Some((kernel, stack)) = found.filter(|(kernel, _)| !kernel.options.is_empty()) else {
        return Verdict::Unexplained;
    };
    let has_options = arrived(context, difference).is_some_and(|packet| !packet.options.is_empty());
    when(has_options && kernel.icmp().is_some() && stack.options.is_empty(), Verdict::Continue)
}

/// The kernel drops a packet with a source route silently.
fn source_route(context: &Context<'_>, difference: &Difference) -> Verdict {
    let has_route = |packet: &Packet| has_option(packet, 0x83) || has_option(packet, 0x89);
    let refused = only_stack(difference).is_some_and(|sent| sent.icmp() == Some((12, 0)));
    when(refused && arrived(context, difference).is_some_and(has_route), Verdict::Continue)
}

/// The kernel treats addresses of class E and of network 0 like unicast addresses.
fn class_e(context: &Context<'_>, difference: &Difference) -> Verdict {
    let is_reserved = |place: Place| matches!(place, Place::Literal(IpAddr::V4(address)) if matches!(address.octets(), [240..=254, ..] | [0, .., 1]));
    let found = before(context, difference).any(|packet| is_reserved(packet.to) || is_reserved(packet.from));
    when(found, Verdict::Stop)
}

/// The kernel reports a missing route even if it is not a router, and for the unspecified address.
fn report_without_route(context: &Context<'_>, difference: &Difference) -> Verdict {
    let is_report = only_kernel(difference).is_some_and(|sent| sent.icmp() == Some((1, 0)) && sent.from.is_ipv6());
    let is_nowhere = |packet: &Packet| matches!(packet.to, Place::Literal(to) if to.is_unspecified());
    let has_none = !context.sequence.router || arrived(context, difference).is_some_and(is_nowhere);
    when(is_report && has_none, Verdict::Continue)
}

/// The kernel reports a fragment header behind another one.
fn nested_fragment(context: &Context<'_>, difference: &Difference) -> Verdict {
    let is_report = only_kernel(difference).is_some_and(|sent| sent.icmp() == Some((4, 0)) && sent.from.is_ipv6());
    let nested = |packet: &Packet| {
        let headers = packet.extensions.iter().filter(|extension| extension.kind == FRAGMENT).count();
        headers + usize::from(packet.cut.is_some()) > 1
    };
    when(is_report && arrived(context, difference).is_some_and(nested), Verdict::Continue)
}

/// The kernel forwards packets with link-local addresses over the link on which they arrive, and reports others.
fn link_local_forward(context: &Context<'_>, difference: &Difference) -> Verdict {
    let is_local = |place: Place| match place {
        Place::PeerLink => true,
        Place::Literal(IpAddr::V4(address)) => address.is_link_local(),
        Place::Literal(IpAddr::V6(address)) => address.is_unicast_link_local(),
        Place::Own(_)
        | Place::Peer(_)
        | Place::Other(_)
        | Place::Far
        | Place::Aside
        | Place::Lost
        | Place::Broadcast(_)
        | Place::Network(_) => false,
    };
    let found = arrived(context, difference).is_some_and(|packet| is_local(packet.from) || is_local(packet.to));
    when(found && context.sequence.router && only_kernel(difference).is_some(), Verdict::Continue)
}

/// The stack answers a link-local IPv4 address over the link on which its packet arrived. The kernel needs a route.
fn link_local_source(context: &Context<'_>, difference: &Difference) -> Verdict {
    let is_link_local =
        |packet: &Packet| matches!(packet.from, Place::Literal(IpAddr::V4(from)) if from.is_link_local());
    when(only_stack(difference).is_some() && arrived(context, difference).is_some_and(is_link_local), Verdict::Continue)
}

/// The stack is a member of the solicited-node groups on every link. The kernel is only on links with neighbour discovery.
fn solicited_node(context: &Context<'_>, difference: &Difference) -> Verdict {
    let is_group = |packet: &Packet| matches!(packet.to, Place::Literal(IpAddr::V6(to)) if to.segments()[..7] == [0xff02, 0, 0, 0, 0, 1, 0xff00]);
    when(only_stack(difference).is_some() && arrived(context, difference).is_some_and(is_group), Verdict::Continue)
}

/// The kernel answers a timestamp request.
fn timestamp_reply(_: &Context<'_>, difference: &Difference) -> Verdict {
    when(
        only_kernel(difference).is_some_and(|sent| sent.icmp() == Some((14, 0)) && sent.from.is_ipv4()),
        Verdict::Continue,
    )
}

/// The stack sends no redirect for an ICMP error.
fn redirect_for_error(context: &Context<'_>, difference: &Difference) -> Verdict {
    let is_error =
        |packet: &Packet| matches!(packet.body, Body::Icmp { .. } | Body::Error { .. }) || packet.cut.is_some();
    let found = only_kernel(difference).is_some_and(is_redirect);
    when(found && arrived(context, difference).is_some_and(is_error), Verdict::Continue)
}

/// A router has several addresses from which it may send an error.
fn error_source(context: &Context<'_>, difference: &Difference) -> Verdict {
    let found = only_in(difference, Field::From);
    when(context.sequence.router && found.is_some_and(|(kernel, _)| kernel.is_error()), Verdict::Continue)
}

/// The stack's application receives each error about its datagrams. The kernel's receives soft errors only if it asks for them.
fn soft_error(_: &Context<'_>, difference: &Difference) -> Verdict {
    let Difference::Call { kernel: Outcome::Empty, stack: Outcome::Failed(error), .. } = difference else {
        return Verdict::Unexplained;
    };
    when(matches!(*error, Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::ACCESS | Errno::PROTO), Verdict::Continue)
}

/// The kernel has an error number for each code. The stack has one error for codes that an application treats alike.
fn error_class(_: &Context<'_>, difference: &Difference) -> Verdict {
    let Difference::Call { kernel: Outcome::Failed(kernel), stack: Outcome::Failed(stack), .. } = difference else {
        return Verdict::Unexplained;
    };
    let alike = matches!(
        (*kernel, *stack),
        (Errno::HOSTDOWN | Errno::NETUNREACH, Errno::HOSTUNREACH)
            | (Errno::NONET | Errno::OPNOTSUPP, Errno::NETUNREACH)
    );
    when(alike, Verdict::Continue)
}

/// The kernel believes an error about a packet that is smaller than the reported MTU, or that may be fragmented.
fn too_big_check(context: &Context<'_>, difference: &Difference) -> Verdict {
    let is_error =
        |packet: &Packet| matches!(packet.body, Body::Error { kind: 3, code: 4, .. } | Body::Error { kind: 2, .. });
    let only_kernel =
        matches!(difference, Difference::Call { kernel: Outcome::Failed(Errno::MSGSIZE), stack: Outcome::Empty, .. });
    let is_cut =
        matches!(context.sequence.steps.get(difference.step()), Some(Act::Call(Call { kind: CallKind::Send(..), .. })))
            && !matches!(difference, Difference::Call { .. });
    when((only_kernel || is_cut) && before(context, difference).any(is_error), Verdict::Stop)
}

/// The kernel quotes a datagram without the bytes behind the end of the UDP datagram.
fn udp_trim(_: &Context<'_>, difference: &Difference) -> Verdict {
    let Some((kernel, stack)) = only_in(difference, Field::Len) else { return Verdict::Unexplained };
    let is_closed_port = matches!(kernel.icmp(), Some((3, 3) | (1, 4)));
    let is_prefix = stack.payload.get(8..kernel.payload.len()) == kernel.payload.get(8..);
    when(is_closed_port && is_prefix, Verdict::Continue)
}

/// The kernel writes its address and time into the options that ask for them, and clears what follows the end of the options.
fn recorded_options(context: &Context<'_>, difference: &Difference) -> Verdict {
    let is_odd = |packet: &Packet| matches!(packet.damage, Some(Damage::HeaderLength(_)));
    let asks = |packet: &Packet| has_option(packet, 7) || has_option(packet, 68) || is_odd(packet);
    let found = only_in(difference, Field::Options).or_else(|| only_in(difference, Field::Payload));
    when(found.is_some() && arrived(context, difference).is_some_and(asks), Verdict::Continue)
}

/// The stack sends no error about a fragment without the type of an ICMP message, because the message may be an error.
fn unknown_fragment(context: &Context<'_>, difference: &Difference) -> Verdict {
    let is_short = only_kernel(difference).is_some_and(|sent| sent.icmp() == Some((4, 3)));
    let is_later = |packet: &Packet| packet.cut.is_some_and(|cut| cut.offset > 0 || is_short);
    let found = only_kernel(difference).is_some_and(|sent| sent.is_error() && sent.from.is_ipv6());
    when(found && arrived(context, difference).is_some_and(is_later), Verdict::Continue)
}

/// The stack refuses a first fragment that ends behind or within its extension headers.
fn cut_extension(context: &Context<'_>, difference: &Difference) -> Verdict {
    let is_refusal = only_stack(difference).is_some_and(|sent| sent.icmp() == Some((4, 3)));
    let has_extensions =
        |packet: &Packet| !packet.extensions.is_empty() && packet.cut.is_some_and(|cut| cut.offset == 0);
    when(is_refusal && arrived(context, difference).is_some_and(has_extensions), Verdict::Stop)
}

/// For the kernel, the length 0 in a UDP header over IPv6 means the length of the packet.
fn udp_jumbogram(context: &Context<'_>, difference: &Difference) -> Verdict {
    let has_no_length = |packet: &Packet| match (&packet.body, packet.damage) {
        (Body::Udp { len, .. }, Some(Damage::UdpLength(by))) => i32::from(*len) + 8 + i32::from(by) == 0,
        _ => false,
    };
    when(context.sequence.v6 && before(context, difference).any(has_no_length), Verdict::Stop)
}

/// The kernel gives up a datagram if a fragment exceeds the largest length. The stack drops only this fragment.
fn oversize_fragment(context: &Context<'_>, difference: &Difference) -> Verdict {
    let exceeds = |packet: &Packet| packet.cut.is_some_and(|cut| cut.offset == 65_528);
    when(before(context, difference).any(exceeds), Verdict::Stop)
}

/// The kernel knows segment routing and mobile hosts, and drops their headers silently if they are switched off.
fn segment_routing(context: &Context<'_>, difference: &Difference) -> Verdict {
    const ROUTING: u8 = 43;
    let is_known = |header: &Extension| header.kind == ROUTING && matches!(header.bytes[0], 2 | 4);
    when(before(context, difference).any(|packet| packet.extensions.iter().any(is_known)), Verdict::Stop)
}

/// The kernel drops packets with padding that is not zero, and with a router alert of a wrong length.
fn option_form(context: &Context<'_>, difference: &Difference) -> Verdict {
    let is_odd = |header: &Extension| header.bytes == [1, 4, 0, 7, 0, 0] || header.bytes == [5, 1, 0, 1, 1, 0];
    when(before(context, difference).any(|packet| packet.extensions.iter().any(is_odd)), Verdict::Stop)
}

/// The kernel accepts a broadcast address of another link as a source.
fn source_broadcast(context: &Context<'_>, difference: &Difference) -> Verdict {
    let is_broadcast = |packet: &Packet| matches!(packet.from, Place::Broadcast(_));
    when(before(context, difference).any(is_broadcast), Verdict::Stop)
}

/// The kernel receives datagrams to the broadcast address of each of its networks over any device.
fn other_broadcast(context: &Context<'_>, difference: &Difference) -> Verdict {
    let is_of_other = |packet: &Packet| matches!(packet.to, Place::Broadcast(network) if network != packet.device);
    let found = matches!(difference, Difference::Call { kernel: Outcome::Received(..), stack: Outcome::Empty, .. });
    when(found && before(context, difference).any(is_of_other), Verdict::Stop)
}

/// The kernel treats the first address of a network like a unicast address.
fn network_address(context: &Context<'_>, difference: &Difference) -> Verdict {
    let has_first =
        |packet: &Packet| matches!((packet.from, packet.to), (Place::Network(_), _) | (_, Place::Network(_)));
    when(before(context, difference).any(has_first), Verdict::Stop)
}

/// The kernel's echo reply has the code of the request.
fn echo_code(context: &Context<'_>, difference: &Difference) -> Verdict {
    let has_code = |packet: &Packet| matches!(packet.body, Body::Icmp { kind: 8 | 128, code, .. } if code > 0);
    when(arrived(context, difference).is_some_and(has_code), Verdict::Continue)
}

/// The kernel shortens a fragment whose length is no multiple of eight, although another one follows. The stack drops it.
fn uneven_fragment(context: &Context<'_>, difference: &Difference) -> Verdict {
    let is_uneven = |packet: &Packet| packet.cut.is_some_and(|cut| cut.more && cut.len % 8 > 0);
    when(before(context, difference).any(is_uneven) && !context.sequence.v6, Verdict::Stop)
}

/// The kernel accepts its own IPv6 addresses as sources of received packets, and forwards packets from the unspecified address and from
/// IPv4-mapped addresses.
fn own_source(context: &Context<'_>, difference: &Difference) -> Verdict {
    let is_own = |packet: &Packet| match packet.from {
        Place::Own(_) => true,
        Place::Literal(from) => from == LINK_LOCAL || from.is_unspecified() || is_mapped(from),
        Place::Peer(_)
        | Place::Other(_)
        | Place::Far
        | Place::Aside
        | Place::Lost
        | Place::Broadcast(_)
        | Place::Network(_)
        | Place::PeerLink => false,
    };
    when(before(context, difference).any(is_own) && context.sequence.v6, Verdict::Stop)
}

/// The kernel examines the hop-by-hop options of packets that it forwards.
fn hop_by_hop(context: &Context<'_>, difference: &Difference) -> Verdict {
    let has_options = |packet: &Packet| packet.extensions.first().is_some_and(|header| header.kind == 0);
    let is_here = |packet: &Packet| matches!(packet.to, Place::Own(_));
    let found = arrived(context, difference).is_some_and(|packet| has_options(packet) && !is_here(packet));
    when(found && context.sequence.router, Verdict::Continue)
}

/// The kernel gives up a datagram if a fragment is empty. The stack ignores this fragment.
fn empty_fragment(context: &Context<'_>, difference: &Difference) -> Verdict {
    let is_empty = |packet: &Packet| packet.cut.is_some_and(|cut| cut.len == 0);
    when(before(context, difference).any(is_empty), Verdict::Stop)
}

/// The kernel ignores a fragment whose bytes have all arrived, and forgets a datagram with fragments that overlap otherwise. The stack
/// drops both datagrams and all their further fragments.
fn contained_fragment(context: &Context<'_>, difference: &Difference) -> Verdict {
    let fragments: Vec<(u16, Cut)> =
        before(context, difference).filter_map(|packet| Some((packet.ident, packet.cut?))).collect();
    let end = |cut: Cut| u32::from(cut.offset) + u32::from(cut.len);
    let overlap = |one: &(u16, Cut), other: &(u16, Cut)| {
        let ((ident, one), (other_ident, other)) = (*one, *other);
        let is_same = (one.offset, one.len) == (other.offset, other.len);
        ident == other_ident && !is_same && u32::from(one.offset) < end(other) && u32::from(other.offset) < end(one)
    };
    when(fragments.iter().any(|one| fragments.iter().any(|other| overlap(one, other))), Verdict::Stop)
}

fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some())
}

/// A socket of the kernel receives datagrams to each group that its host has joined. A socket of the stack has to join itself.
fn multicast_all(context: &Context<'_>, difference: &Difference) -> Verdict {
    let is_group = |packet: &Packet| matches!(packet.to, Place::Literal(to) if to.is_multicast());
    let found = matches!(difference, Difference::Call { kernel: Outcome::Received(..), stack: Outcome::Empty, .. });
    when(found && before(context, difference).any(is_group), Verdict::Stop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::differential::rules::tests::names_of_table;

    #[test]
    fn each_rule_has_a_line_in_the_document_and_each_line_a_rule() {
        let mut rules: Vec<&str> = RULES.iter().map(|rule| rule.name).collect();
        rules.sort_unstable();
        assert_eq!(names_of_table("## UDP, ICMP, fragments and forwarding"), rules);
    }
}
