//! Routers between the stack and the kernel, and the stack as the router between two kernels.

use crate::peer;
use crate::place::{Place, possible};
use crate::tap::Tap;
use std::net::SocketAddr;

const DEVICES: &str = "--router --device a=10.1.0.1/24,fd01::1/64,mtu=1500 --device b=10.2.0.1/24,fd02::1/64";

/// Two places with the stack as their router; the link to the second takes packets of that size.
struct Routed {
    near: Place,
    far: Place,
    tap: Tap,
}

impl Routed {
    fn new(arguments: &str, mtu: u16) -> Self {
        let (near, far) = (Place::new(), Place::new());
        let tap = Tap::start(&near, &format!("{DEVICES},mtu={mtu} {arguments}"));
        near.ip(&format!("link set dev b netns {}", far.pid()));
        // A host that believes its own link to be wide names a large MSS: what crosses is for the router to say.
        far.ip("link set dev b up mtu 1500");
        for (place, device, number) in [(&near, "a", 1), (&far, "b", 2)] {
            place.ip(&format!(
                "addr add 10.{number}.0.2/24 dev {device}\n addr add fd0{number}::2/64 dev {device}\n\
                 route add default via 10.{number}.0.1\n route add default via fd0{number}::1"
            ));
        }
        Self { near, far, tap }
    }
}

#[test]
fn the_stack_is_a_router_that_traceroute_names() {
    if !possible(&["traceroute", "ping"]) {
        return;
    }
    let net = Routed::new("", 1_500);
    for (router, host) in [("10.1.0.1", "10.2.0.2"), ("fd01::1", "fd02::2")] {
        let version = if host.contains(':') { "-6" } else { "-4" };
        for method in ["", "-I", "-T -p 80"] {
            let text = net.near.run(&format!("traceroute {version} -n -q 1 -w 2 -m 4 {method} {host}"));
            let hops: Vec<&str> = text.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).collect();
            assert_eq!(hops, [router, host], "{text}");
        }
        let text = net.near.run(&format!("ping -n -q -c 20 -i 0.01 -w 10 -s 3000 {host}"));
        assert!(text.contains("20 received"), "{text}");
    }
    net.tap.stop();
}

#[test]
fn the_kernel_learns_the_mtu_of_the_link_behind_the_stack() {
    if !possible(&[]) {
        return;
    }
    for arguments in ["", "--offload"] {
        let net = Routed::new(arguments, 1_300);
        for host in ["10.2.0.2", "fd02::2"] {
            let to = SocketAddr::new(host.parse().unwrap(), 9);
            let received = peer::serve_check(&net.far, to);
            net.near.inside(|| peer::send_only(to, 4_000_000));
            assert_eq!(received.recv(), Ok(4_000_000));
            let route = net.near.run(&format!("ip route get {host}"));
            assert!(route.contains("mtu 1300"), "{route}");
        }
        net.tap.stop();
    }
}

#[test]
fn the_stack_learns_the_mtu_of_a_link_behind_the_kernel() {
    if !possible(&[]) {
        return;
    }
    for arguments in ["", "--offload"] {
        let (first, second, host) = (Place::router(), Place::router(), Place::new());
        first.ip(&format!("link add near mtu 1300 type veth peer name far mtu 1300 netns {}", second.pid()));
        second.ip(&format!("link add near mtu 1500 type veth peer name far mtu 1500 netns {}", host.pid()));
        first.ip("addr add 10.8.0.1/24 dev near\n addr add fd08::1/64 dev near\n link set near up");
        second.ip("addr add 10.8.0.2/24 dev far\n addr add fd08::2/64 dev far\n link set far up\n\
             addr add 10.9.0.1/24 dev near\n addr add fd09::1/64 dev near\n link set near up\n\
             route add default via 10.8.0.1\n route add default via fd08::1");
        host.ip("addr add 10.9.0.2/24 dev far\n addr add fd09::2/64 dev far\n link set far up\n\
             route add default via 10.9.0.1\n route add default via fd09::1");
        first.ip("route add 10.9.0.0/24 via 10.8.0.2\n route add fd09::/64 via fd08::2");
        let routes = "--route 10.9.0.0/24=10.7.0.1 --route fd09::/64=fd07::1";
        for (address, layer, counter) in [("10.9.0.2", "IcmpMsg", "OutType3"), ("fd09::2", "Icmp6", "OutPktTooBigs")] {
            let to = SocketAddr::new(address.parse().unwrap(), 7);
            peer::serve_echo(&host, to);
            let text = Tap::start(&first, &format!("{arguments} {routes} --connect {to} --send 4M")).end();
            assert!(first.counter(layer, counter) > 0, "nothing was too big: {text}");
        }
    }
}

#[test]
fn the_kernel_cuts_large_segments_and_fills_in_checksums_of_the_stack() {
    if !possible(&[]) {
        return;
    }
    // The kernel fills in checksums and cuts large segments for the second stack, which checks them; and it
    // makes large ones of that one's segments for the first.
    let place = Place::router();
    let routes = "--route 10.6.0.0/24=10.7.0.1 --route fd06::/64=fd07::1";
    let server = Tap::start(&place, &format!("--offload {routes}"));
    for to in ["10.7.0.2:7", "[fd07::2]:7"] {
        let device = "--device siga1=10.6.0.2/24,fd06::2/64,kernel=10.6.0.1/24,kernel=fd06::1/64";
        let routes = "--route 10.7.0.0/24=10.6.0.1 --route fd07::/64=fd06::1";
        let text = Tap::start(&place, &format!("{device} {routes} --connect {to} --send 8M")).end();
        assert!(!text.contains("checksum"), "{text}");
    }
    let text = server.stop();
    assert!(!text.contains("checksum") && !text.contains("did not take"), "{text}");
}
