//! Secrets and what goes on the wire: no value that a peer sees reveals another.

use crate::world::*;
use std::collections::BTreeSet;
use std::net::SocketAddr;

/// Identifications of the fragments of some datagrams over IPv6, with other things drawn in between.
fn identifications(between: impl Fn(&mut World)) -> Vec<[u8; 4]> {
    let mut world = World::host();
    let socket = world.stack.udp_bind("[::]:7".parse().unwrap()).unwrap();
    let remote: SocketAddr = format!("[{}]:9", HOST6[0]).parse().unwrap();
    let mut found = Vec::new();
    for _ in 0..8 {
        between(&mut world);
        world.sent(0);
        world.stack.udp_send(world.now, socket, Some(remote), &[1; 2_000]).unwrap();
        let frame = world.sent(0).remove(0);
        assert_eq!(frame[20], 44, "a fragment");
        found.push(*frame[58..].first_chunk().unwrap());
    }
    found
}

/// Draws a port for a UDP socket.
fn draw_port(world: &mut World) -> u16 {
    let socket = world.stack.udp_bind("0.0.0.0:0".parse().unwrap()).unwrap();
    world.stack.udp_local(socket).unwrap().port()
}

/// Has the stack send an error, whose limit draws a number.
fn draw_error(world: &mut World) {
    world.give_packet(0, &udp_to(ROUTER[0], (5, 6), b"x"));
}

#[test]
fn fragment_identifications_come_from_their_own_random_stream() {
    let alone = identifications(|_| {});
    let with_ports = identifications(|world| assert!(draw_port(world) > 0));
    assert_eq!(alone, with_ports, "a drawn port moves no identification");
    assert_eq!(alone, identifications(draw_error), "a sent error moves no identification");
    let distinct: BTreeSet<_> = alone.iter().collect();
    assert_eq!(distinct.len(), alone.len());
}

#[test]
fn ephemeral_udp_ports_come_from_their_own_random_stream() {
    let ports = |between: fn(&mut World)| {
        let mut world = World::host();
        let draw = |_| {
            between(&mut world);
            draw_port(&mut world)
        };
        (0..20).map(draw).collect::<Vec<u16>>()
    };
    let fragments = |world: &mut World| {
        let socket = world.stack.udp_bind("[::]:0".parse().unwrap()).unwrap();
        let remote: SocketAddr = format!("[{}]:9", HOST6[0]).parse().unwrap();
        world.stack.udp_send(world.now, socket, Some(remote), &[1; 2_000]).unwrap();
    };
    let skipped: Vec<u16> = ports(fragments);
    let all: Vec<u16> = ports(|world| assert!(draw_port(world) > 0));
    assert_eq!(skipped, all, "each round draws two ports, and its fragments move neither");
    assert_eq!(ports(|_| {}), ports(draw_error));
}
