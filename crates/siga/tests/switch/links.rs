//! Modelled links between ports of a switch and their stations.

use super::place::possible;
use super::{Blue, One, Red, Setup, Side, Two, World};
use std::time::{Duration, Instant};

impl World {
    /// Changes the modelled link of a port.
    pub(crate) fn link(&self, words: &[&str]) {
        self.network.text(&[&["link", self.network.name.as_str(), "lan"], words].concat());
    }

    /// Returns the shortest time of three pings.
    fn round_trip(&self, from: Side, to: Side) -> Duration {
        let times = (0..3).map(|_| {
            let begun = Instant::now();
            assert!(self.ping(from, to, false), "{from:?} to {to:?}");
            begun.elapsed()
        });
        times.min().unwrap()
    }
}

#[test]
fn frames_take_the_time_of_the_modelled_links_between_every_two_kinds_of_ports() {
    if !possible(&["python3"]) {
        return;
    }
    let setup = Setup {
        network: "type = \"vswitch\"",
        red: "link = \"latency=100ms\"",
        one: ", link = { to_station = \"latency=300ms\" }",
        ..Setup::default()
    };
    let world = World::up("links", &setup);
    let ms = Duration::from_millis;
    // Red delays both directions, and guest one delays what it receives.
    for (from, to, least) in [(Red, Blue, 200), (Two, Red, 200), (Blue, One, 300), (One, Two, 300), (Red, One, 500)] {
        let time = world.round_trip(from, to);
        assert!(time >= ms(least) && time < ms(least + 400), "{from:?} to {to:?}: {time:?} instead of {least} ms");
    }
    assert!(world.network.text(&["port", world.network.name.as_str(), "lan"]).contains("link latency=100ms"));

    // A change keeps the settings that it does not name, and holds for both directions or for one.
    world.link(&["red", "loss=100%"]);
    assert!(!world.ping(Red, Blue, false) && world.ping(One, Two, false), "only red loses frames");
    world.link(&["red", "loss=0%", "--direction", "from-station"]);
    assert!(!world.ping(Red, Blue, false));
    world.link(&["red", "loss=0%"]);
    assert!(world.round_trip(Red, Blue) >= ms(200), "the latency is still there");
    assert!(
        world.counter("red", "link_from_station_delivered") > 0 && world.counter("red", "link_to_station_lost") > 0
    );
    world.link(&["red", "off"]);
    world.link(&["one", "off"]);
    assert!(world.round_trip(Red, One) < ms(200));
}

#[test]
fn bytes_cross_links_that_lose_reorder_and_repeat_frames_intact() {
    if !possible(&["python3"]) {
        return;
    }
    let link = "rate=200mbit,latency=1ms,jitter=500us,loss=1%,reorder=1%,duplicate=1%,corrupt=1%";
    let red = format!("link = \"{link},seed=1\"");
    let one = format!(", link = \"{link},seed=2\"");
    let world = World::up(
        "lossy",
        &Setup { network: "type = \"vswitch\"\nmtu = 1500", red: &red, one: &one, ..Setup::default() },
    );
    for (from, to) in [(One, Two), (Two, Red), (Red, Blue), (Red, One)] {
        [false, true].into_iter().for_each(|v6| world.echo(from, to, v6, 1 << 20));
    }
    // Red's frames are ordinary ones, because a link carries no large segments.
    let (frames, bytes) = (world.counter("red", "port_frames_sent"), world.counter("red", "port_bytes_sent"));
    assert!(bytes / frames <= 1_514, "{bytes} bytes in {frames} frames");
    for counter in ["lost", "reordered", "duplicated", "corrupted"] {
        assert!(world.counter("red", &format!("link_from_station_{counter}")) > 0, "{counter}");
    }
}

#[test]
fn a_wrong_setting_of_a_link_is_refused() {
    if !possible(&[]) {
        return;
    }
    let world = World::up("wrong", &Setup { network: "type = \"vswitch\"", ..Setup::default() });
    for (words, part) in [
        (["red", "rate=0bit"], "write a rate"),
        (["red", "colour=red"], "no setting `colour`"),
        (["none", "loss=1%"], "no port none"),
    ] {
        let output = world.network.siga(&[&["link", world.network.name.as_str(), "lan"], &words[..]].concat());
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && text.contains(part), "{text}");
    }
    assert!(world.ping(Red, One, false), "the network goes on");
}
