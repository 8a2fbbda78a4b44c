//! Settings of TCP by their names in Linux, for a stack and for the hosts of a prefix.

use crate::net::{Net, PLAIN, any};
use crate::tcp::held;
use crate::world::prefix;
use siga_stack::limits::TCP_ROUTE_SETTINGS_MAX;
use siga_stack::link::frame::DeviceId;
use siga_stack::sockets::{RouteSettings, RouteSettingsError, TcpDefaults, TcpId, TcpOptions};
use siga_stack::tcp::{Config, CongestionControl, Failure, Keepalive, LinuxInfo, SettingError, StateName};
use siga_stack::time::Duration;

/// Two hosts whose connections have these settings.
fn net_with(settings: &[(&str, &str)]) -> Net {
    let mut net = Net::new(&[PLAIN]);
    for stack in &mut net.stacks {
        for (name, value) in settings {
            stack.set_tcp_default(name, value).unwrap();
        }
    }
    net
}

fn options(net: &Net, place: usize) -> TcpOptions {
    TcpOptions { config: net.stacks[place].tcp_defaults().config, ..TcpOptions::default() }
}

fn connect(net: &mut Net) -> TcpId {
    let (now, to, options) = (net.now, net.far(false, 80), options(net, 0));
    net.first().tcp_connect(now, any(false), to, &options).unwrap()
}

/// Whether an Ethernet frame carries IPv4, and not a message about neighbours.
fn is_ipv4(frame: &[u8]) -> bool {
    frame[12..14] == [8, 0]
}

/// Both ends of a connection.
fn open(net: &mut Net) -> (TcpId, TcpId) {
    let (to, options) = (net.far(false, 80), options(net, 1));
    let listener = net.last().tcp_listen(to, 8, &options).unwrap();
    let here = connect(net);
    net.cross();
    let (there, _) = net.last().tcp_accept(listener).unwrap().unwrap();
    (here, there)
}

fn info(net: &Net, id: TcpId) -> LinuxInfo {
    net.stacks[0].tcp_linux_info(net.now, id).unwrap()
}

/// The values are those of Linux, except for one more SYN, path MTU probes after a black hole, Fast Open for servers, and the sizes of
/// buffers.
#[test]
fn settings_of_a_stack_have_the_names_and_defaults_of_linux() {
    let mut defaults = TcpDefaults::default();
    for (name, value) in [
        ("initcwnd", "10"),
        ("quickack", "0"),
        ("rto_min", "200"),
        ("tcp_congestion_control", "cubic"),
        ("tcp_early_retrans", "3"),
        ("tcp_ecn", "2"),
        ("tcp_fastopen", "3"),
        ("tcp_fastopen_blackhole_timeout_sec", "3600"),
        ("tcp_fin_timeout", "60"),
        ("tcp_keepalive_intvl", "75"),
        ("tcp_keepalive_probes", "9"),
        ("tcp_keepalive_time", "7200"),
        ("tcp_min_rtt_wlen", "300"),
        ("tcp_mtu_probing", "1"),
        ("tcp_notsent_lowat", "4294967295"),
        ("tcp_recovery", "1"),
        ("tcp_reordering", "3"),
        ("tcp_retries2", "15"),
        ("tcp_rmem", "4096 131072 6291456"),
        ("tcp_sack", "1"),
        ("tcp_slow_start_after_idle", "1"),
        ("tcp_syn_retries", "7"),
        ("tcp_synack_retries", "5"),
        ("tcp_timestamps", "1"),
        ("tcp_window_scaling", "1"),
        ("tcp_wmem", "4096 65536 4194304"),
    ] {
        assert_eq!(defaults.named(name).as_deref(), Ok(value), "{name}");
        assert!(TcpDefaults::setting_names().any(|known| known == name), "{name}");
    }
    for name in TcpDefaults::setting_names() {
        let value = defaults.named(name).unwrap();
        assert_eq!(defaults.set_named(name, &value), Ok(()), "{name}");
    }
    for (name, value) in [
        ("tcp_congestion_control", "reno"),
        ("tcp_early_retrans", "0"),
        ("tcp_ecn", "1"),
        ("tcp_ecn", "0"),
        ("tcp_ecn", "3"),
        ("tcp_ecn", "4"),
        ("tcp_ecn", "5"),
        ("tcp_fastopen", "1541"),
        ("tcp_fastopen_blackhole_timeout_sec", "0"),
        ("tcp_fin_timeout", "9"),
        ("tcp_keepalive_intvl", "8"),
        ("tcp_keepalive_probes", "7"),
        ("tcp_keepalive_time", "6"),
        ("tcp_wmem", "4096 65536 99999"),
        ("tcp_wmem", "4096 16384 131072"),
        ("initcwnd", "200"),
        ("quickack", "1"),
        ("rto_min", "65535"),
        ("tcp_mtu_probing", "2"),
        ("tcp_reordering", "127"),
        ("tcp_rmem", "4096 10000 20000"),
    ] {
        assert_eq!(defaults.set_named(name, value), Ok(()), "{name}");
        assert_eq!(defaults.named(name).as_deref(), Ok(value), "{name}");
    }
    assert_eq!(defaults.config.check(), Ok(()));
    let (idle, interval) = (Duration::from_secs(6), Duration::from_secs(8));
    assert_eq!(defaults.keepalive, Keepalive { idle, interval, probes: 7 });
    let fast_open = defaults.fast_open;
    assert!(fast_open.client && fast_open.client_without_cookie && fast_open.all_listeners);
    assert!(!fast_open.server && fast_open.server_without_cookie && fast_open.black_hole_time.is_zero());
}

#[test]
fn a_setting_with_an_unknown_name_or_a_wrong_value_is_refused_with_a_clear_error() {
    let mut net = Net::new(&[PLAIN]);
    let before = format!("{:?}", net.stacks[0].tcp_defaults());
    for (name, value, message) in [
        ("tcp_sack", "2", "tcp_sack: 2 is out of range; write 0 to 1"),
        ("tcp_ecn", "6", "tcp_ecn: 6 is out of range; write 0 to 5"),
        ("tcp_reordering", "0", "tcp_reordering: 0 is out of range; write 1 to 127"),
        ("tcp_recovery", "0", "tcp_recovery: 0 is not supported; the only supported value is 1"),
        ("tcp_keepalive_time", "0", "tcp_keepalive_time: 0 is out of range; write 1 to 32767"),
        ("tcp_reordering", "-1", "tcp_reordering: the value must be one number"),
        ("tcp_reordering", "3 3", "tcp_reordering: the value must be one number"),
        ("tcp_reordering", "", "tcp_reordering: the value must be one number"),
        ("tcp_rmem", "4096 1", "tcp_rmem: the value must be 3 numbers, separated by spaces"),
        ("tcp_rmem", "8192 1 1", "tcp_rmem: 8192 is not supported; the only supported value is 4096"),
        ("tcp_wmem", "4096 0 9000", "tcp_wmem: 0 is out of range; write 1 to 536870912"),
        ("tcp_wmem", "4096 9000 536870913", "tcp_wmem: 536870913 is out of range; write 1 to 536870912"),
        (
            "tcp_wmem",
            "4096 1000 9000",
            "tcp_wmem: the least size 4096 is larger than the default size 1000; write the least, the default and the largest size \
             of the buffer in this order",
        ),
        (
            "tcp_rmem",
            "4096 9001 9000",
            "tcp_rmem: the default size 9001 is larger than the largest size 9000; write the least, the default and the largest \
             size of the buffer in this order",
        ),
        (
            "tcp_congestion_control",
            "vegas",
            "\"vegas\" is not a congestion control algorithm; the algorithms are: reno, cubic, bbr",
        ),
    ] {
        let error = net.first().set_tcp_default(name, value).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
    let unknown = net.first().set_tcp_default("tcp_sac", "1").unwrap_err();
    assert!(matches!(&unknown, SettingError::Unknown { name, .. } if name == "tcp_sac"));
    assert!(unknown.to_string().contains("the settings are: tcp_congestion_control, initcwnd,"), "{unknown}");
    assert_eq!(format!("{:?}", net.stacks[0].tcp_defaults()), before);
}

#[test]
fn an_opening_connection_gives_up_after_the_set_number_of_retransmissions() {
    let mut net = net_with(&[("tcp_syn_retries", "1"), ("tcp_synack_retries", "0")]);
    // One retransmission: 1 s, then 2 s.
    net.lost = Box::new(|_, frame| is_ipv4(frame));
    let here = connect(&mut net);
    net.pass(Duration::from_millis(2_900));
    assert_eq!(net.stacks[0].tcp_state(here), Ok(StateName::SynSent));
    net.pass(Duration::from_millis(200));
    assert_eq!(net.stacks[0].tcp_state(here), Ok(StateName::Closed));
    // A SYN-ACK that is not retransmitted.
    let (to, options) = (net.far(false, 80), options(&net, 1));
    net.last().tcp_listen(to, 1, &options).unwrap();
    net.lost = Box::new(|from, frame| from == 1 && is_ipv4(frame));
    connect(&mut net);
    net.cross();
    assert_eq!(held(&net.stacks[1]).0, 1);
    net.lost = Box::new(|_, frame| is_ipv4(frame));
    net.pass(Duration::from_millis(1_100));
    assert_eq!(held(&net.stacks[1]).0, 0);
}

#[test]
fn an_open_connection_gives_up_after_the_set_number_of_retransmissions() {
    for (retries, time) in [("2", 3), ("15", 120)] {
        let mut net = net_with(&[("tcp_retries2", retries), ("tcp_early_retrans", "0")]);
        let (here, _) = open(&mut net);
        net.lost = Box::new(|_, _| true);
        let now = net.now;
        net.first().tcp_send(now, here, b"x").unwrap();
        net.pass(Duration::from_secs(time));
        let failed = net.first().tcp_receive(now, here, &mut [0]).is_err();
        assert_eq!(failed, retries == "2", "{retries}");
        if failed {
            let error = siga_stack::sockets::TcpError::Failed(Failure::TimedOut);
            assert_eq!(net.first().tcp_receive(now, here, &mut [0]), Err(error));
        }
    }
}

#[test]
fn the_initial_window_applies_after_an_idle_time_unless_the_setting_forbids_it() {
    for (value, keeps) in [("0", true), ("1", false)] {
        let mut net = net_with(&[("tcp_slow_start_after_idle", value)]);
        let (here, there) = open(&mut net);
        let bytes = vec![0; 1_000_000];
        net.stream((0, here), (1, there), &bytes);
        assert!(info(&net, here).snd_cwnd > 10);
        net.pass(Duration::from_secs(30));
        let now = net.now;
        net.first().tcp_send(now, here, b"x").unwrap();
        net.cross();
        assert_eq!(info(&net, here).snd_cwnd > 11, keeps, "{value}");
    }
}

/// The last of several segments is lost, or the first one of a few without SACK.
#[test]
fn tail_loss_probes_and_the_reordering_threshold_follow_their_settings() {
    for (settings, lost, timeouts) in [
        (&[("tcp_early_retrans", "3")][..], 5, 0),
        (&[("tcp_early_retrans", "0")], 5, 1),
        (&[("tcp_sack", "0"), ("tcp_reordering", "3")], 1, 0),
        (&[("tcp_sack", "0"), ("tcp_reordering", "6")], 1, 1),
    ] {
        let mut net = net_with(settings);
        let (here, _) = open(&mut net);
        let mut count = 0;
        net.lost = Box::new(move |from, _| {
            count += u32::from(from == 0);
            from == 0 && count == lost
        });
        for _ in 0..5 {
            let now = net.now;
            net.first().tcp_send(now, here, &[0; 1_448]).unwrap();
            net.cross();
        }
        net.pass(Duration::from_secs(3));
        let LinuxInfo { total_rto, total_retrans, unacked, .. } = info(&net, here);
        assert_eq!((total_rto, unacked, total_retrans > 0), (timeouts, 0, true), "{settings:?}");
    }
}

#[test]
fn the_sizes_of_the_send_buffer_decide_how_much_a_first_write_accepts() {
    // Twice the initial window of ten segments is 28,960 bytes. The default size counts if it is larger, and the largest size limits both.
    for (sizes, accepted) in [
        ("4096 16384 131072", 28_960),
        ("4096 65536 131072", 65_536),
        ("4096 131072 131072", 131_072),
        ("4096 16384 20000", 20_000),
    ] {
        let mut net = net_with(&[("tcp_wmem", sizes)]);
        let (here, _) = open(&mut net);
        let now = net.now;
        assert_eq!(net.first().tcp_send(now, here, &vec![0; 1 << 20]), Ok(accepted), "{sizes}");
    }
}

#[test]
fn the_default_size_of_the_receive_buffer_is_the_first_window() {
    for (sizes, window) in
        [("4096 20000 20000", 20_000_u32), ("4096 87380 174760", 87_380), ("4096 131072 174760", 131_072)]
    {
        let mut net = net_with(&[("tcp_rmem", sizes)]);
        let (here, _) = open(&mut net);
        // The unit of the scaled window is at most 8 bytes here.
        assert_eq!(info(&net, here).rcv_wnd.div_ceil(8), window.div_ceil(8), "{sizes}");
    }
}

#[test]
fn the_minimum_rtt_is_valid_for_the_set_time() {
    for (value, min_rtt) in [("300", 0), ("1", 7_000)] {
        let mut net = net_with(&[("tcp_min_rtt_wlen", value)]);
        let (here, _) = open(&mut net);
        net.now += Duration::from_secs(2);
        let now = net.now;
        net.first().tcp_send(now, here, b"x").unwrap();
        let mut into = [0; 2_000];
        let frame = net.first().poll_transmit(now, DeviceId(0), &mut into).unwrap();
        net.now += Duration::from_millis(7);
        net.carry(0, DeviceId(0), &into[..frame.len], frame.marks);
        net.cross();
        assert_eq!(info(&net, here).min_rtt, min_rtt, "{value}");
    }
}

fn route_settings(change: impl FnOnce(&mut RouteSettings)) -> RouteSettings {
    let mut settings = RouteSettings::default();
    change(&mut settings);
    settings
}

#[test]
fn a_prefix_limits_the_first_receive_window_of_its_connections() {
    let mut net = Net::new(&[PLAIN]);
    let mut settings = RouteSettings::default();
    for (name, value) in [("initrwnd", "4"), ("advmss", "1000")] {
        settings.set_named(name, value).unwrap();
    }
    net.first().set_route_settings(prefix("10.0.0.2", 32), settings).unwrap();
    let (here, _) = open(&mut net);
    // The unit of the scaled window is 128 bytes.
    assert_eq!(info(&net, here).rcv_wnd.div_ceil(128), 4_000_u32.div_ceil(128));
    // An application that has chosen the size of its buffer has precedence.
    let config = Config { receive_buffer_bytes: 10_000, ..options(&net, 0).config };
    let (now, to) = (net.now, net.far(false, 80));
    let chosen = net.first().tcp_connect(now, any(false), to, &TcpOptions { config, ..TcpOptions::default() }).unwrap();
    net.cross();
    assert_eq!(info(&net, chosen).rcv_wnd.div_ceil(128), 10_000_u32.div_ceil(128));
}

#[test]
fn connections_to_a_prefix_have_the_settings_of_the_longest_prefix() {
    let mut net = Net::new(&[PLAIN]);
    let window = |segments| route_settings(|settings| settings.initial_window_segments = Some(segments));
    let mut host = RouteSettings::default();
    for (name, value) in [("initcwnd", "2"), ("advmss", "1000"), ("congctl", "reno")] {
        host.set_named(name, value).unwrap();
    }
    let wide = prefix("10.0.0.0", 8);
    net.first().set_route_settings(wide, window(5)).unwrap();
    let (here, _) = open(&mut net);
    assert_eq!((info(&net, here).snd_cwnd, info(&net, here).advmss), (5, 1_448));
    net.first().set_route_settings(prefix("10.0.0.2", 32), host.clone()).unwrap();
    let later = connect(&mut net);
    net.cross();
    assert_eq!((info(&net, later).snd_cwnd, info(&net, later).advmss, info(&net, later).snd_mss), (2, 988, 988));
    let congestion = |net: &Net, id| net.stacks[0].tcp_info(id).unwrap().unwrap().congestion;
    assert_eq!((congestion(&net, here), congestion(&net, later)), (CongestionControl::Cubic, CongestionControl::Reno));
    net.first().set_route_settings(prefix("10.0.0.2", 32), RouteSettings::default()).unwrap();
    net.first().set_route_settings(wide, RouteSettings::default()).unwrap();
    let last = connect(&mut net);
    net.cross();
    assert_eq!(info(&net, last).snd_cwnd, 10, "the settings were removed");
    // Refused values, and the limit.
    let set = |net: &mut Net, settings| net.first().set_route_settings(wide, settings);
    assert_eq!(set(&mut net, window(0)), Err(RouteSettingsError::InitialWindow));
    for (name, value, message) in [
        ("initcwnd", "0", "initcwnd: 0 is out of range; write 1 to 255"),
        ("hoplimit", "0", "hoplimit: 0 is out of range; write 1 to 255"),
        ("rto_min", "0", "rto_min: 0 is out of range; write 1 to 65535"),
        ("quickack", "2", "quickack: 2 is out of range; write 0 to 1"),
        ("advmss", "87", "advmss: 87 is out of range; write 88 to 65535"),
    ] {
        assert_eq!(host.set_named(name, value).unwrap_err().to_string(), message);
    }
    let unknown = host.set_named("mtu", "1500").unwrap_err().to_string();
    let start = "\"mtu\" is not a setting; the settings are: congctl, tcp_congestion_control, advmss, hoplimit, \
         initrwnd, initcwnd, quickack, rto_min, tcp_early_retrans, ";
    assert!(unknown.starts_with(start), "{unknown}");
    let small = route_settings(|settings| settings.mss_max = Some(87));
    assert_eq!(set(&mut net, small), Err(RouteSettingsError::SegmentSize));
    for place in 0..TCP_ROUTE_SETTINGS_MAX {
        let prefix = prefix(&format!("192.0.2.{place}"), 32);
        net.first().set_route_settings(prefix, window(1)).unwrap();
    }
    assert_eq!(set(&mut net, window(1)), Err(RouteSettingsError::Full));
}

#[test]
fn connections_to_a_prefix_have_the_named_settings_that_their_application_does_not_choose() {
    let mut net = Net::new(&[PLAIN]);
    let mut host = RouteSettings::default();
    for (name, value) in [
        ("tcp_sack", "1"),
        ("tcp_sack", "0"),
        ("tcp_retries2", "3"),
        ("tcp_notsent_lowat", "5000"),
        ("quickack", "1"),
        ("rto_min", "50"),
        ("tcp_congestion_control", "reno"),
    ] {
        host.set_named(name, value).unwrap();
    }
    assert!(host.set_named("tcp_sack", "2").is_err() && host.set_named("tcp_fastopen", "1").is_err());
    net.first().set_route_settings(prefix("10.0.0.2", 32), host).unwrap();
    let (here, there) = open(&mut net);
    let now = net.now;
    let config = |net: &Net, place: usize, id| net.stacks[place].tcp_options(id).unwrap().config;
    let used = config(&net, 0, here);
    assert_eq!((used.sack, used.retries_max, used.unsent_bytes_max), (false, 3, 5_000));
    assert_eq!((used.congestion, used.quick_acks), (CongestionControl::Reno, true));
    // The connection opened without a delay.
    assert_eq!((info(&net, here).ato, info(&net, here).rto), (0, 50_000));
    // `TCPI_OPT_SACK` is 2.
    assert_eq!((info(&net, here).options & 2, config(&net, 1, there).sack), (0, true));
    // What the application chooses has precedence.
    let chosen = Config { retries_max: 9, congestion: CongestionControl::Bbr, ..Config::LINUX };
    let options = TcpOptions { config: chosen, ..TcpOptions::default() };
    let to = net.far(false, 80);
    let other = net.first().tcp_connect(now, any(false), to, &options).unwrap();
    let used = config(&net, 0, other);
    assert_eq!((used.sack, used.retries_max, used.congestion), (false, 9, CongestionControl::Bbr));
}

#[test]
fn a_connection_accepts_ecn_unless_the_setting_forbids_it() {
    for (accepts, options) in [("0", 0), ("1", 8), ("2", 8)] {
        let mut net = Net::new(&[PLAIN]);
        net.first().set_tcp_default("tcp_ecn", "1").unwrap();
        net.last().set_tcp_default("tcp_ecn", accepts).unwrap();
        let (here, _) = open(&mut net);
        assert_eq!(info(&net, here).options & 8, options, "{accepts}");
    }
}

#[test]
fn an_initial_window_can_exceed_ten_segments() {
    let mut net = net_with(&[("initcwnd", "30")]);
    let (here, _) = open(&mut net);
    let now = net.now;
    assert_eq!(net.first().tcp_send(now, here, &[0; 29 * 1_448]), Ok(29 * 1_448));
    let mut into = [0; 2_000];
    let sent = std::iter::from_fn(|| net.first().poll_transmit(now, DeviceId(0), &mut into)).count();
    assert_eq!((info(&net, here).snd_cwnd, sent), (30, 29));
}

#[test]
fn fin_wait_2_ends_after_the_set_time_once_the_application_has_closed() {
    for (secs, after) in [("5", None), ("60", Some(1))] {
        let mut net = net_with(&[("tcp_fin_timeout", secs)]);
        let (here, _) = open(&mut net);
        let now = net.now;
        net.first().tcp_close(now, here).unwrap();
        net.cross();
        net.pass(Duration::from_secs(6));
        let left = held(&net.stacks[0]).0;
        assert_eq!((left > 0).then_some(left), after, "{secs}");
    }
}
