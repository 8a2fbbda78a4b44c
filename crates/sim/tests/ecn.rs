//! What accurate ECN (RFC 9768) promises over a bottleneck that marks packets.
#![allow(clippy::unwrap_used, reason = "tests assert by unwrapping")]

use siga_sim::bottleneck::{Bottleneck, Stream, Streams};
use siga_sim::sharing::{self, PATH};
use siga_stack::tcp::CongestionControl;
use siga_stack::time::Duration;

/// What a stream has done after its start.
#[derive(Debug)]
struct Outcome {
    arrived_bytes: u64,
    /// How many packets the bottleneck marked, and how many the sender knows to be marked.
    marked: u64,
    known: u64,
    dropped: u64,
}

/// Runs a stream with `tcp_ecn` over a bottleneck that marks packets of a long queue.
fn run(congestion: CongestionControl, tcp_ecn: &str) -> Outcome {
    let mut config = sharing::config(congestion);
    config.set_named("tcp_ecn", tcp_ecn).unwrap();
    let bottleneck = Bottleneck {
        queue_frames: 4 * PATH.window_frames(),
        mark_over: Some(PATH.window_frames() / 2),
        ..Bottleneck::of(PATH)
    };
    let mut world = Streams::new(1, &bottleneck, &[Stream::of(config)]).unwrap();
    world.run_for(Duration::from_secs(20)).unwrap();
    let info = world.info(0).unwrap();
    Outcome {
        arrived_bytes: world.arrived(0),
        marked: world.marked(),
        known: info.delivered_ce.into(),
        dropped: world.queue_drops(),
    }
}

#[test]
fn a_sender_with_accurate_ecn_knows_how_many_of_its_packets_were_marked() {
    for congestion in [CongestionControl::Cubic, CongestionControl::Reno, CongestionControl::Bbr] {
        let accurate = run(congestion, "3");
        // Packets that are in flight at the end are marked and not yet reported.
        let unreported = accurate.marked - accurate.known;
        assert!(accurate.marked > 10 && unreported <= PATH.window_frames() as u64 * 5, "{congestion:?} {accurate:?}");
        assert!(unreported * 10 <= accurate.marked, "{congestion:?} {accurate:?}");
    }
}

#[test]
fn accurate_ecn_slows_a_stream_down_without_losses_as_classic_ecn_does() {
    for congestion in [CongestionControl::Cubic, CongestionControl::Reno] {
        let [without, classic, accurate] = ["0", "1", "3"].map(|tcp_ecn| run(congestion, tcp_ecn));
        assert!(without.dropped > 0 && without.marked == 0, "{congestion:?} {without:?}");
        assert!(classic.dropped == 0 && accurate.dropped == 0, "{congestion:?} {classic:?} {accurate:?}");
        let ratio = accurate.arrived_bytes * 100 / classic.arrived_bytes;
        assert!((90..=110).contains(&ratio), "{congestion:?} {classic:?} {accurate:?}");
    }
}
