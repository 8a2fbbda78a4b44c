//! BBR in a connection: pacing, its timer, and changes between algorithms.

use super::pair::{CLIENT, Fault, Pair, SERVER};
use super::*;

fn bbr() -> Config {
    Config { congestion: CongestionControl::Bbr, ..plain() }
}

#[test]
fn a_connection_with_bbr_sends_at_its_pacing_rate_and_reports_the_next_departure() {
    let mut dialogue = Dialogue::established(bbr());
    dialogue.write(4_000);
    // The RTT is 100 ms, so ten segments of 1,000 bytes leave at 2.77 times the rate of 100 kB/s: one in 3.6 ms.
    dialogue.sends(&["- 1001:2001 ack 5001"]);
    let info = dialogue.connection.linux_info(dialogue.now, 40);
    assert_eq!((info.pacing_rate, info.delivery_rate), (277_000, 0));
    // The first departure may be up to 2 ms late without a loss of rate.
    assert_eq!(dialogue.timeout(), Duration::from_nanos(1_610_108));
    for sent in ["- 2001:3001 ack 5001", "- 3001:4001 ack 5001"] {
        dialogue.sends(&[sent]);
        dialogue.sends(&[]);
        assert_eq!(dialogue.timeout(), Duration::from_nanos(3_610_108));
    }
    dialogue.sends(&["- 4001:5001 ack 5001"]);
    assert!(dialogue.timeout() >= ms(100), "no segment waits, so only the timers of acknowledgements run");
    dialogue.ends();
}

#[test]
fn a_connection_with_bbr_measures_its_delivery_rate() {
    let mut pair = Pair::established(Config { congestion: CongestionControl::Bbr, ..Config::LINUX }, Config::LINUX);
    pair.delay = ms(20);
    // 1,448 bytes in a millisecond.
    pair.occupies = ms(1);
    pair.transfer(CLIENT, &stream(4_000_000));
    let info = pair.ends[CLIENT].linux_info(pair.now, 40);
    assert!((1_300_000..1_500_000).contains(&info.delivery_rate), "{info:?}");
    assert!((500_000..2_000_000).contains(&info.pacing_rate), "{info:?}");
    let model = pair.ends[CLIENT].bbr_info().unwrap();
    assert!((1_300_000..1_500_000).contains(&model.bandwidth), "{model:?}");
    assert!((40_000..42_000).contains(&model.min_rtt), "{model:?}");
    // Gains of 0.9 to 1.25 after the startup, times 256.
    assert!((230..=320).contains(&model.pacing_gain) && (128..=576).contains(&model.cwnd_gain), "{model:?}");
    assert_eq!(pair.ends[SERVER].bbr_info(), None);
    let other = pair.ends[SERVER].linux_info(pair.now, 40);
    assert_eq!((other.pacing_rate, other.delivery_rate), (u64::MAX, 0), "cubic paces nothing");
    // Two times 20 ms, and the queue before the narrowest link.
    assert!((39_000..90_000).contains(&other.rcv_rtt), "{other:?}");
    pair.close();
}

#[test]
fn duplicate_acknowledgements_do_not_raise_the_delivery_rate() {
    for sack in [true, false] {
        let config = Config { congestion: CongestionControl::Bbr, sack, ..Config::LINUX };
        let mut pair = Pair::established(config, config);
        (pair.delay, pair.occupies) = (ms(20), ms(1));
        pair.faults[CLIENT] = Box::new(|number, _| (number % 100 == 50).then_some(Fault::Drop));
        pair.transfer(CLIENT, &stream(2_000_000));
        let info = pair.ends[CLIENT].linux_info(pair.now, 40);
        assert!(info.total_retrans > 0 && info.delivery_rate < 1_500_000, "{sack} {info:?}");
        pair.close();
    }
}

#[test]
fn an_open_connection_changes_to_bbr_and_back() {
    let mut pair = Pair::established(Config::LINUX, Config::LINUX);
    pair.delay = ms(20);
    for congestion in [CongestionControl::Bbr, CongestionControl::Cubic, CongestionControl::Bbr] {
        pair.ends[CLIENT].send(pair.now, &stream(20_000)).unwrap();
        pair.ends[CLIENT].set_congestion(congestion);
        pair.run(ms(10));
        pair.ends[SERVER].receive(pair.now, &mut [0; 20_000]);
        pair.run(ms(500));
        pair.ends[SERVER].receive(pair.now, &mut [0; 20_000]);
        assert_eq!(pair.ends[CLIENT].info().unwrap().congestion, congestion);
    }
    let info = pair.ends[CLIENT].info().unwrap();
    assert_eq!((info.flight, info.unsent, info.repeated_segments), (0, 0, 0));
    pair.close();
}

#[test]
fn a_connection_with_bbr_keeps_its_window_over_an_idle_time() {
    let mut dialogue = Dialogue::established(bbr());
    let window = |dialogue: &Dialogue| dialogue.connection.info().unwrap().congestion_window;
    dialogue.write(1_000);
    dialogue.sends(&["- 1001:2001 ack 5001"]);
    dialogue.after(100);
    dialogue.gets("- 5001:5001 ack 2001");
    assert_eq!(window(&dialogue), 11_000);
    dialogue.after(60_000);
    dialogue.write(1_000);
    dialogue.sends(&["- 2001:3001 ack 5001"]);
    assert_eq!(window(&dialogue), 11_000);
    dialogue.ends();
}

#[test]
fn a_connection_with_bbr_sends_one_segment_after_a_timeout_and_regains_its_window() {
    let mut dialogue = Dialogue::established(Config { tail_loss_probes: false, ..bbr() });
    dialogue.write(3_000);
    dialogue.sends(&["- 1001:2001 ack 5001"]);
    for sent in ["- 2001:3001 ack 5001", "- 3001:4001 ack 5001"] {
        dialogue.timeout();
        dialogue.sends(&[sent]);
    }
    dialogue.after(400);
    assert_eq!(dialogue.connection.info().unwrap().congestion_window, 1_000);
    dialogue.sends(&["- 1001:2001 ack 5001"]);
    dialogue.after(100);
    dialogue.gets("- 5001:5001 ack 2001");
    dialogue.sends(&["- 2001:3001 ack 5001"]);
    dialogue.after(100);
    dialogue.sends(&["- 3001:4001 ack 5001"]);
    dialogue.after(100);
    dialogue.gets("- 5001:5001 ack 4001");
    let info = dialogue.connection.info().unwrap();
    assert!(info.congestion_window >= 10_000 && info.recovery == RecoveryPhase::Open, "{info:?}");
    dialogue.ends();
}
