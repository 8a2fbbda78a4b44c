//! Conversions from the data types of `siga-model` to the types of the stack and the ring.

use ipnet::IpNet;
use siga_model::error::{Error, Result};
use siga_model::features::DriverFeatures;
use siga_model::topology::NetworkKind;
use siga_model::topology::sources::SourceList;
use siga_model::waiting::Waiting;
use siga_ring::Producer;
use siga_ring::wait::policy::Mode;
use siga_stack::link::device::Agreed;
use siga_stack::link::source::Sources;
use siga_stack::wire::address::Prefix;

/// Converts an address prefix to the stack's type.
pub(crate) fn prefix(net: IpNet) -> Prefix {
    let prefix = Prefix::new(net.addr(), net.prefix_len());
    prefix.unwrap_or_else(|| unreachable!("{net} has at most as many bits as its address"))
}

/// Converts a list of allowed source addresses to the filter that the stack applies to a partner's packets.
///
/// # Errors
/// Returns an error if the list has too many prefixes.
pub(crate) fn filter(list: &SourceList) -> Result<Sources> {
    let prefixes = |nets: &[IpNet]| nets.iter().copied().map(prefix).collect::<Vec<Prefix>>();
    let refused = |error| {
        Error::usage(format!("the stack refuses a list of {} prefixes of source addresses: {error:?}", list.len()))
    };
    Sources::new(&prefixes(&list.admitted), &prefixes(&list.refused)).map_err(refused)
}

/// Converts a waiting policy to the ring's type.
pub(crate) fn mode(waiting: Waiting) -> Mode {
    match waiting {
        Waiting::Adaptive => Mode::Adaptive,
        Waiting::Block => Mode::Block,
        Waiting::Poll => Mode::Poll,
    }
}

/// Returns which optional properties frames on a link may have: checksums that are not filled in, and segments larger than the MTU.
/// Both ends of the link use the same settings. The blocks of some networks have no place for these properties.
pub(crate) fn agreed(features: DriverFeatures, kind: NetworkKind) -> Agreed {
    Agreed {
        checksum_unfilled: features.omit_checksums && !kind.has_no_marks(),
        // A large segment must fit into one buffer.
        large_segments: features.large_segments && kind.takes_large_segments(),
    }
}

/// Configures a new ring according to the driver features `packing` and `suppress_doorbells`.
pub(crate) fn prepare(ring: &mut Producer, features: DriverFeatures, kind: NetworkKind) {
    ring.set_packing(features.packing && !kind.has_blocks());
    ring.set_notify_always(!features.suppress_doorbells);
}
