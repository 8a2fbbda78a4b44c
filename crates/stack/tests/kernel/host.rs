//! The stack as a host beside the kernel.

use crate::peer;
use crate::place::{Place, possible};
use crate::tap::{self, Tap};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::Duration;

/// Addresses of the kernel and of the stack, as the program gives them by default.
const KERNEL: [&str; 2] = ["10.7.0.1", "fd07::1"];
const STACK: [&str; 2] = ["10.7.0.2", "fd07::2"];
const ECHO: u16 = 7;
const DISCARD: u16 = 9;

fn at(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), port)
}

/// How much a bulk transfer moves each way.
fn bulk_bytes() -> u64 {
    std::env::var("SIGA_BULK_BYTES").map_or(64_000_000, |text| text.parse().unwrap())
}

/// A number that the program printed before these words.
fn printed(text: &str, words: &str) -> u64 {
    let line = text.lines().find(|line| line.contains(words)).unwrap_or_else(|| panic!("no {words} in\n{text}"));
    line[..line.find(words).unwrap()].split_whitespace().last().unwrap().parse().unwrap()
}

/// No frame of the kernel's was malformed to the stack, and the kernel took all of the stack's. What came twice, or before its
/// neighbour was known, is dropped with a reason that says no more than that.
fn assert_understood(text: &str) {
    const REASONS: [&str; 8] =
        ["bad ", "truncated", "unknown", "martian", "no route", "too ", "timestamp", "unsent data"];
    let mut dropped = text.lines().filter(|line| line.starts_with("dropped:"));
    assert!(!dropped.any(|line| REASONS.iter().any(|reason| line.contains(reason))), "{text}");
    assert!(!text.contains("did not take"), "{text}");
}

fn bulk_from_the_kernel(arguments: &str) {
    if !possible(&[]) {
        return;
    }
    let place = Place::new();
    let tap = Tap::start(&place, arguments);
    for stack in STACK {
        place.inside(|| peer::exchange(at(stack, ECHO), bulk_bytes()));
    }
    let text = tap.stop();
    assert_eq!(printed(&text, " failed;"), 0, "{text}");
    assert_understood(&text);
    println!("{arguments}: {text}");
}

fn bulk_from_the_stack(arguments: &str) {
    if !possible(&[]) {
        return;
    }
    for kernel in KERNEL {
        let place = Place::new();
        peer::serve_echo(&place, at(kernel, ECHO));
        let connect = format!("{arguments} --connect {} --send {}", at(kernel, ECHO), bulk_bytes());
        let text = Tap::start(&place, &connect).end();
        assert_understood(&text);
        println!("{connect}: {text}");
    }
}

#[test]
fn a_bulk_transfer_from_the_kernel_is_echoed_whole() {
    bulk_from_the_kernel("");
}

#[test]
fn a_bulk_transfer_from_the_kernel_is_echoed_whole_with_offload() {
    bulk_from_the_kernel("--offload");
}

#[test]
fn a_bulk_transfer_from_the_stack_is_echoed_whole() {
    bulk_from_the_stack("");
}

#[test]
fn a_bulk_transfer_from_the_stack_is_echoed_whole_with_offload() {
    bulk_from_the_stack("--tun --offload");
}

#[test]
fn the_stack_serves_a_thousand_simultaneous_connections_of_the_kernel() {
    if !possible(&[]) {
        return;
    }
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let place = Place::new();
    let tap = Tap::start(&place, "--offload");
    for stack in STACK {
        place.inside(|| {
            let mut streams: Vec<_> = (0..1_000).map(|_| peer::connect(at(stack, ECHO))).collect();
            for round in 0..3_usize {
                let question = |index: usize| vec![(index * 7 + round).to_le_bytes()[0]; 1_000 + index];
                for (index, stream) in streams.iter_mut().enumerate() {
                    stream.write_all(&question(index)).unwrap();
                }
                for (index, stream) in streams.iter_mut().enumerate() {
                    let mut answer = vec![0; 1_000 + index];
                    stream.read_exact(&mut answer).unwrap();
                    assert_eq!(answer, question(index));
                }
            }
        });
    }
    let text = tap.stop();
    assert_eq!((printed(&text, " connections accepted"), printed(&text, " failed;")), (2_000, 0), "{text}");
    assert_understood(&text);
}

#[test]
fn small_writes_of_the_kernel_are_acknowledged_when_they_are_read() {
    if !possible(&[]) {
        return;
    }
    let place = Place::new();
    let tap = Tap::start(&place, "");
    for stack in STACK {
        // Longer than the acknowledgements that are sent at once at the start.
        place.inside(|| {
            // A delayed acknowledgement takes 40 ms. A busy host can make one attempt slow, but hardly three.
            let attempts: Vec<Duration> = (0..3).map(|_| peer::send_small(at(stack, DISCARD), 100)).collect();
            assert!(attempts.iter().any(|each| *each < Duration::from_millis(25)), "{stack}: {attempts:?}");
        });
    }
    assert_understood(&tap.stop());
}

#[test]
fn the_stack_opens_a_thousand_simultaneous_connections_to_the_kernel() {
    if !possible(&[]) {
        return;
    }
    for kernel in KERNEL {
        let place = Place::new();
        peer::serve_echo(&place, at(kernel, ECHO));
        let arguments = format!("--connect {} --send 10000 --connections 1000", at(kernel, ECHO));
        let text = Tap::start(&place, &arguments).end();
        assert_understood(&text);
    }
}

#[test]
fn the_stack_serves_ten_thousand_short_connections_of_the_kernel() {
    if !possible(&[]) {
        return;
    }
    let place = Place::new();
    let tap = Tap::start(&place, "");
    for stack in STACK {
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    place.enter();
                    (0..2_500).for_each(|_| peer::ask(at(stack, ECHO), &[7; 200]));
                });
            }
        });
    }
    let text = tap.stop();
    assert_eq!((printed(&text, " connections accepted"), printed(&text, " failed;")), (20_000, 0), "{text}");
    assert_understood(&text);
}

#[test]
fn the_stack_opens_ten_thousand_short_connections_to_the_kernel() {
    if !possible(&[]) {
        return;
    }
    for kernel in KERNEL {
        let place = Place::new();
        peer::serve_echo(&place, at(kernel, ECHO));
        let arguments = format!("--connect {} --send 200 --connections 10000 --at-once 20", at(kernel, ECHO));
        let text = Tap::start(&place, &arguments).end();
        assert_understood(&text);
    }
}

#[test]
fn the_kernel_accepts_the_data_of_the_stacks_syns() {
    if !possible(&[]) {
        return;
    }
    for kernel in KERNEL {
        let place = Place::new();
        // Client, server, and every listener without a call of its own.
        place.set("ipv4/tcp_fastopen", "1027");
        peer::serve_echo(&place, at(kernel, ECHO));
        let arguments = format!("--fast-open --connect {} --send 2000 --connections 20 --at-once 1", at(kernel, ECHO));
        let text = Tap::start(&place, &arguments).end();
        assert_understood(&text);
        let counted = ["TCPFastOpenCookieReqd", "TCPFastOpenPassive", "TCPFastOpenPassiveFail"]
            .map(|name| place.counter("TcpExt", name));
        assert_eq!(counted, [1, 19, 0], "{kernel}");
    }
}

#[test]
fn the_stack_accepts_the_data_of_the_kernels_syns() {
    if !possible(&[]) {
        return;
    }
    let place = Place::new();
    let tap = Tap::start(&place, "--fast-open");
    for stack in STACK {
        place.inside(|| (0..20).for_each(|_| peer::ask_fast(at(stack, ECHO), &[7; 1_000])));
    }
    let text = tap.stop();
    assert_eq!((printed(&text, " connections accepted"), printed(&text, " failed;")), (40, 0), "{text}");
    assert_understood(&text);
    let counted = ["TCPFastOpenActive", "TCPFastOpenActiveFail"].map(|name| place.counter("TcpExt", name));
    assert_eq!(counted, [38, 0]);
}

#[test]
fn pings_of_any_size_are_answered() {
    if !possible(&["ping"]) {
        return;
    }
    let place = Place::new();
    for arguments in ["", "--offload", "--tun"] {
        let tap = Tap::start(&place, arguments);
        for stack in STACK {
            for bytes in [0, 56, 1_400, 1_472, 1_500, 20_000, 65_000] {
                let text = place.run(&format!("ping -n -c 5 -i 0.01 -w 10 -s {bytes} {stack}"));
                // Where an answer is late it sends more than five, and ends with the fifth that it gets.
                let answered = |number: u32| text.contains(&format!("icmp_seq={number} "));
                assert!((1..=5).all(answered), "{arguments}, {bytes} bytes: {text}");
            }
            let text = place.run(&format!("ping -n -q -f -c 5000 -w 20 {stack}"));
            let sent = text.lines().find_map(|line| line.split_once(" packets transmitted, 5000 received"));
            let sent: u32 = sent.and_then(|(sent, _)| sent.parse().ok()).unwrap_or(u32::MAX);
            // One more for every 10 ms that an answer is late.
            assert!(sent < 5_100, "{arguments}: {text}");
        }
        assert_understood(&tap.stop());
    }
}

#[test]
fn curl_gets_pages_from_the_stack() {
    if !possible(&["curl"]) {
        return;
    }
    let place = Place::new();
    let directory = std::env::temp_dir().join(format!("siga-kernel-{}", std::process::id()));
    fs::create_dir(&directory).unwrap();
    let file = directory.join("bytes");
    for arguments in ["", "--offload"] {
        let tap = Tap::start(&place, arguments);
        for stack in STACK {
            let base = match stack.parse().unwrap() {
                IpAddr::V4(address) => format!("http://{address}"),
                IpAddr::V6(address) => format!("http://[{address}]"),
            };
            let curl = |words: &str| place.run(&format!("curl --silent --show-error --max-time 20 {words}"));
            assert!(curl(&format!("{base}/")).contains("<h1>siga</h1>"));
            assert!(curl(&format!("{base}/status")).contains("TCP connections"));
            assert!(curl(&format!("--head {base}/bytes/5")).contains("Content-Length: 5"));
            assert!(curl(&format!("--write-out %{{http_code}} {base}/none")).contains("404"));
            assert!(curl(&format!("--write-out %{{http_code}} --data x {base}/")).contains("405"));
            // Two requests over one connection.
            let both = curl(&format!("--write-out %{{num_connects}} {base}/bytes/0 {base}/bytes/0"));
            assert_eq!(both, "10");
            curl(&format!("--output {} {base}/bytes/20000001", file.display()));
            let got = fs::read(&file).unwrap();
            let mut expected = vec![0; 20_000_001];
            crate::content::fill(0, &mut expected);
            assert!(got == expected, "{} bytes", got.len());
        }
        tap.stop();
    }
    fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn streams_with_the_kernel_survive_two_percent_loss() {
    const RULES: &str = "table inet lossy {
        chain input { type filter hook input priority 0; meta l4proto tcp numgen random mod 100 < 2 drop; }
        chain output { type filter hook output priority 0; meta l4proto tcp numgen random mod 100 < 2 drop; }
    }";
    if !possible(&["nft"]) {
        return;
    }
    for arguments in ["", "--offload"] {
        let place = Place::new();
        place.feed("nft -f -", RULES);
        let tap = Tap::start(&place, arguments);
        for stack in STACK {
            place.inside(|| peer::exchange(at(stack, ECHO), 4_000_000));
        }
        let text = tap.stop();
        assert_eq!(printed(&text, " failed;"), 0, "{text}");
    }
    for arguments in ["", "--offload"] {
        for kernel in KERNEL {
            let place = Place::new();
            place.feed("nft -f -", RULES);
            peer::serve_echo(&place, at(kernel, ECHO));
            let connect = format!("{arguments} --connect {} --send 4M --connections 4", at(kernel, ECHO));
            Tap::start(&place, &connect).end();
        }
    }
}

#[test]
fn congestion_marks_are_echoed_in_both_directions() {
    const RULES: &str = "table inet congested {
        counter in { }
        counter out { }
        counter reduced { }
        chain input { type filter hook prerouting priority 0
            tcp flags & (syn | cwr) == cwr counter name reduced
            numgen random mod 100 >= 10 accept
            ip ecn ect0 ip ecn set ce counter name in
            ip6 ecn ect0 ip6 ecn set ce counter name in
        }
        chain output { type filter hook output priority 0
            numgen random mod 100 >= 10 accept
            ip ecn ect0 ip ecn set ce counter name out
            ip6 ecn ect0 ip6 ecn set ce counter name out
        }
    }";
    if !possible(&["nft"]) {
        return;
    }
    for arguments in ["", "--offload"] {
        for stack in STACK {
            let place = Place::new();
            place.set("ipv4/tcp_ecn", "1");
            place.feed("nft -f -", RULES);
            let tap = Tap::start(&place, arguments);
            place.inside(|| peer::exchange(at(stack, ECHO), 16_000_000));
            tap.stop();
            let counted = |name: &str| {
                let text = place.run(&format!("nft list counter inet congested {name}"));
                text.split_once("packets ").unwrap().1.split(' ').next().unwrap().parse::<u64>().unwrap()
            };
            let counts = ["in", "out", "reduced"].map(counted);
            assert!(counts.iter().all(|count| *count > 0), "{arguments} {stack}: {counts:?}");
            // The stack has reported the marks that it received to the kernel.
            assert!(place.counter("TcpExt", "TCPDeliveredCE") > 0, "{arguments} {stack}: {counts:?}");
        }
    }
}

#[test]
fn impossible_arguments_of_the_tap_example_are_refused_with_advice() {
    for (arguments, status, words) in [
        ("--device siga0", 2, "`=`"),
        ("--device siga0=10.7.0.2", 2, "ADDRESS/LENGTH"),
        ("--device a-name-that-is-too-long=10.7.0.2/24", 2, "15 characters"),
        ("--route 10.0.0.0/8", 2, "gateway"),
        ("--send 1G", 2, "--connect"),
        ("--connect 10.7.0.1:7 --send much", 2, "number of bytes"),
        ("--congestion none", 2, "cubic"),
    ] {
        let output = tap::refuse(arguments);
        assert_eq!((output.0, output.1.contains(words)), (Some(status), true), "{arguments}: {}", output.1);
    }
}
