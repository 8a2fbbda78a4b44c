//! Sets the queueing discipline (qdisc) of a level, and reads it back.
//!
//! The qdisc is on the interfaces with which client and server send: `siga-c` and `siga-s`, or `lo` if they share a namespace. So
//! every packet passes it once in each direction. Other interfaces of the path keep the kernel's default.

use super::netlink::Requests as _;
use super::network::{Interface, Network};
use netlink_packet_core::{DefaultNla, Emitable, Nla, NlasIterator};
use netlink_packet_route::tc::{TcAttribute, TcOption};
use siga_model::error::{Error, IoContext, Result};
use siga_plan::level::Level;
use siga_plan::qdisc::{Netem, Qdisc};
use std::fmt::Write;

const TCA_NETEM_RATE: u16 = 6;
const TCA_NETEM_RATE64: u16 = 8;
const TCA_NETEM_LATENCY64: u16 = 10;
const TCA_NETEM_JITTER64: u16 = 11;

/// Length in bytes of the kernel's `struct tc_netem_qopt`: latency, limit, loss, gap, duplicate and jitter, with 32 bits each.
const QOPT_BYTES: usize = 24;

/// What netem is set to, in the kernel's units.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Options {
    /// Maximum number of waiting packets.
    limit: u32,
    /// Probability of loss: 0 is never, `u32::MAX` is always.
    loss: u32,
    delay_ns: i64,
    jitter_ns: i64,
    /// 0: no limit.
    bytes_per_s: u64,
}

/// Sets the qdisc of the level, if the level has one. Call it when the interfaces are up.
pub(super) fn apply(network: &mut Network, level: &Level) -> Result<()> {
    let Some(qdisc) = level.qdisc else { return Ok(()) };
    for interface in senders(network) {
        let options = match qdisc {
            Qdisc::Fq => None,
            Qdisc::Netem(netem) => Some(Options::of(netem).to_bytes()),
        };
        let index = index(interface)?;
        let set = network.node(interface.node)?.netlink.add_qdisc(index, qdisc.name(), options);
        set.map_err(|error| refused(qdisc, interface, &error).at(format!("level {}", level.name)))?;
    }
    Ok(())
}

/// Reads the qdisc of an interface and returns its settings for the record, or an empty text if the level sets no qdisc there.
/// Returns an error if the kernel has another qdisc, or other settings, than the level.
pub(super) fn read_back(network: &mut Network, interface: Interface, level: &Level) -> Result<String> {
    let Some(qdisc) = level.qdisc.filter(|_| sends(interface)) else { return Ok(String::new()) };
    let read = network.node(interface.node)?.netlink.qdisc(index(interface)?);
    let attributes = read.context(format!("cannot read the qdisc of {}", interface.label()))?;
    let differs = |what: &str| {
        let message = format!(
            "interface {} has {what} instead of the queueing discipline (qdisc) that siga has set: {attributes:?}",
            interface.label()
        );
        Error::environment(message).at(format!("level {}", level.name))
    };
    if !attributes.contains(&TcAttribute::Kind(qdisc.name().to_owned())) {
        return Err(differs("another qdisc"));
    }
    let Qdisc::Netem(netem) = qdisc else { return Ok(String::new()) };
    let found = attributes.iter().find_map(Options::in_attribute).ok_or_else(|| differs("a netem without options"))?;
    if found != Options::of(netem) {
        return Err(differs("a netem with other options"));
    }
    Ok(found.describe())
}

fn senders(network: &Network) -> Vec<Interface> {
    network.interfaces.iter().copied().filter(|interface| sends(*interface)).collect()
}

/// Returns whether client or server sends with this interface.
fn sends(interface: Interface) -> bool {
    matches!(interface.name, "siga-c" | "siga-s" | "lo")
}

/// Returns the index of an interface as the type that messages about qdiscs have.
fn index(interface: Interface) -> Result<i32> {
    i32::try_from(interface.index).map_err(|_| {
        Error::environment(format!("interface {} has no index that fits a request for a qdisc", interface.label()))
    })
}

fn refused(qdisc: Qdisc, interface: Interface, error: &std::io::Error) -> Error {
    let name = qdisc.name();
    let message = format!("cannot give {} the qdisc {name}: {error}", interface.label());
    let hint = if error.raw_os_error() == Some(libc::ENOENT) {
        format!("the kernel has no qdisc {name}; try `modprobe sch_{name}`")
    } else {
        "the kernel rejects these settings".to_owned()
    };
    Error::environment(message).hint(hint)
}

impl Options {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of u32::MAX is within u32")]
    fn of(netem: Netem) -> Self {
        Self {
            limit: netem.queue(),
            loss: (netem.loss_percent / 100.0 * f64::from(u32::MAX)).round() as u32,
            delay_ns: i64::from(netem.delay_us) * 1_000,
            jitter_ns: i64::from(netem.jitter_us) * 1_000,
            bytes_per_s: netem.rate_bits_per_s.map_or(0, |bits| bits / 8),
        }
    }

    /// Returns the value of the attribute with the options of netem: the structure, then further attributes.
    fn to_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(QOPT_BYTES);
        for field in [0, self.limit, self.loss, 0, 0, 0] {
            bytes.extend(field.to_ne_bytes());
        }
        // The attribute for the rate has four fields of 32 bits. The first is the rate, and TCA_NETEM_RATE64 replaces it if the
        // rate is larger than 32 bits. The others describe cells and headers of other kinds of link.
        let rate = u32::try_from(self.bytes_per_s).unwrap_or(u32::MAX);
        let rate: Vec<u8> = [rate, 0, 0, 0].into_iter().flat_map(u32::to_ne_bytes).collect();
        let attributes = [
            DefaultNla::new(TCA_NETEM_LATENCY64, self.delay_ns.to_ne_bytes().to_vec()),
            DefaultNla::new(TCA_NETEM_JITTER64, self.jitter_ns.to_ne_bytes().to_vec()),
            DefaultNla::new(TCA_NETEM_RATE64, self.bytes_per_s.to_ne_bytes().to_vec()),
            DefaultNla::new(TCA_NETEM_RATE, rate),
        ];
        bytes.resize(QOPT_BYTES + attributes.as_slice().buffer_len(), 0);
        attributes.as_slice().emit(&mut bytes[QOPT_BYTES..]);
        bytes
    }

    fn in_attribute(attribute: &TcAttribute) -> Option<Self> {
        let TcAttribute::Options(options) = attribute else { return None };
        let [TcOption::Other(nla)] = options.as_slice() else { return None };
        let mut bytes = vec![0; nla.value_len()];
        nla.emit_value(&mut bytes);
        Self::from_bytes(&bytes)
    }

    /// Reads what [`Self::to_bytes`] writes. Returns `None` if it is not well-formed.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (fields, attributes) = bytes.split_at_checked(QOPT_BYTES)?;
        let field = |index: usize| Some(u32::from_ne_bytes(fields.get(4 * index..4 * index + 4)?.try_into().ok()?));
        let mut options = Self { limit: field(1)?, loss: field(2)?, ..Self::default() };
        for attribute in NlasIterator::new(attributes) {
            let attribute = attribute.ok()?;
            let value = attribute.value();
            match attribute.kind() {
                TCA_NETEM_LATENCY64 => options.delay_ns = i64::from_ne_bytes(value.try_into().ok()?),
                TCA_NETEM_JITTER64 => options.jitter_ns = i64::from_ne_bytes(value.try_into().ok()?),
                TCA_NETEM_RATE64 => options.bytes_per_s = u64::from_ne_bytes(value.try_into().ok()?),
                TCA_NETEM_RATE => {
                    let rate = u32::from_ne_bytes(value.get(..4)?.try_into().ok()?);
                    options.bytes_per_s = options.bytes_per_s.max(rate.into());
                }
                _ => {}
            }
        }
        Some(options)
    }

    /// Returns the settings as words for the record, each with a space before it.
    fn describe(self) -> String {
        let mut text = format!(" netem-queue={}", self.limit);
        let mut word = |name: &str, value: String| {
            // A write to a string cannot fail.
            let _ok = write!(text, " netem-{name}={value}");
        };
        if self.delay_ns > 0 {
            word("delay", format!("{}us", self.delay_ns / 1_000));
        }
        if self.jitter_ns > 0 {
            word("jitter", format!("{}us", self.jitter_ns / 1_000));
        }
        if self.loss > 0 {
            word("loss", format!("{:.4}%", f64::from(self.loss) / f64::from(u32::MAX) * 100.0));
        }
        if self.bytes_per_s > 0 {
            word("rate", format!("{}bit/s", self.bytes_per_s * 8));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_netem_are_read_as_they_were_written() {
        for netem in [
            Netem { delay_us: 10_000_000, jitter_us: 1, loss_percent: 0.01, ..Netem::default() },
            Netem { rate_bits_per_s: Some(1_000_000_000_000), queue_packets: Some(7), ..Netem::default() },
            Netem { rate_bits_per_s: Some(8_000), loss_percent: 50.0, ..Netem::default() },
        ] {
            let options = Options::of(netem);
            let bytes = options.to_bytes();
            assert_eq!(Options::from_bytes(&bytes), Some(options), "{netem:?}");
            assert_eq!(Options::from_bytes(&bytes[..bytes.len() - 1]), None, "{netem:?}");
        }
    }

    #[test]
    fn a_record_has_the_settings_of_netem_in_the_units_of_a_level() {
        let netem = Netem {
            delay_us: 10_000,
            loss_percent: 0.01,
            rate_bits_per_s: Some(1_000_000_000),
            queue_packets: Some(4_000),
            ..Netem::default()
        };
        let expected = " netem-queue=4000 netem-delay=10000us netem-loss=0.0100% netem-rate=1000000000bit/s";
        assert_eq!(Options::of(netem).describe(), expected);
    }
}
