//! Draws the measurement environment of z/VM's published tables as a diagram of nodes and links.
//!
//! The nodes are arranged from top to bottom, so that the diagram fits on a phone. Each link is a mark, like the points of a
//! chart: it shows its details when the reader hovers over it, focuses it or taps it.

use super::page::{Figure, heads};
use maud::{Markup, html};

/// The nodes from the clients to the servers: name, description, and CSS class of the box.
const NODES: [(&str, &str, &str); 5] = [
    ("1, 5 or 10 clients", "workload driver", "box"),
    ("TCPIP1", "the clients' stack", "box"),
    ("TCPIP2", "the router stack", "box router"),
    ("TCPIP3", "the servers' stack", "box"),
    ("As many servers", "workload driver", "box"),
];
/// The links between neighbouring nodes: name and description.
const LINKS: [(&str, &str); 4] = [
    ("IUCV", "the clients use the sockets of their stack"),
    ("VCTC", "a virtual channel-to-channel device, in all measurements"),
    ("HiperSockets | Guest LAN | QDIO | CLAW | VCTC", "the connectivity that is compared"),
    ("IUCV", "the servers use the sockets of their stack"),
];

const BOX: f64 = 52.0;
const GAP: f64 = 66.0;

/// Returns figure 1 of the published report.
pub(super) fn environment() -> Figure {
    let row = |(at, (link, about)): (usize, &(&str, &str))| {
        [NODES[at].0, NODES[at + 1].0, link, about].map(str::to_owned).to_vec()
    };
    let title = "Figure 1. Environment";
    Figure {
        title: title.into(),
        about: "Three TCP/IP stacks between clients and servers, all in one partition with two dedicated processors. The router \
                stack (hatched) joins two networks; only the lower one changes between tables."
            .into(),
        drawing: drawing(title),
        head: heads(&["from", "to", "connectivity", "what it is"]),
        numbers: 0..0,
        rows: LINKS.iter().enumerate().map(row).collect(),
        left_out: None,
    }
}

fn drawing(title: &str) -> Markup {
    let height = NODES.len() as f64 * (BOX + GAP) - GAP + 4.0;
    let top = |at: usize| 2.0 + at as f64 * (BOX + GAP);
    html! {
        svg class="diagram" width="100%" height=(height) role="group" aria-label=(title) {
            @for (at, (link, about)) in LINKS.iter().enumerate() {
                @let (from, to) = (top(at) + BOX, top(at + 1));
                g class="mark" tabindex=(if at == 0 { "0" } else { "-1" }) role="img"
                    aria-label={ (NODES[at].0) " – " (NODES[at + 1].0) ": " (link) "\n" (about) } {
                    rect class="hit" x="0" width="100%" y=(from + 1.0) height=(to - from - 2.0) rx="3" {}
                    line class="link" x1="50%" x2="50%" y1=(from) y2=(to) {}
                    (arrow(from + 1.0, -1.0))
                    (arrow(to - 1.0, 1.0))
                    (plate(link, (from + to) / 2.0))
                }
            }
            @for (at, (name, what, class)) in NODES.iter().enumerate() {
                rect class=(class) x="20%" width="60%" y=(top(at)) height=(BOX) rx="6" {}
                rect class="plate" x="24%" width="52%" y=(top(at) + 7.0) height=(BOX - 14.0) rx="4" {}
                text class="strong" x="50%" y=(top(at) + 23.0) text-anchor="middle" { (name) }
                text x="50%" y=(top(at) + 40.0) text-anchor="middle" { (what) }
            }
        }
    }
}

/// Draws the head of an arrow. The tip is at `y` and points down (`down` is 1) or up (-1).
fn arrow(y: f64, down: f64) -> Markup {
    let (base, wing) = (-9.0 * down, 5.0);
    html! {
        svg class="shape" x="50%" y=(y) width="1" height="1" { path d=(format!("M0,0L{wing},{base}L-{wing},{base}z")) {} }
    }
}

/// Draws the name of a link, on a background that covers the line of the link. If `link` lists several connectivity types (joined
/// by `|`), the name has two lines.
fn plate(link: &str, y: f64) -> Markup {
    let names: Vec<&str> = link.split(" | ").collect();
    let lines: Vec<String> = match names[..] {
        [one] => vec![one.to_owned()],
        _ => {
            let (head, tail) = names.split_at(names.len() / 2);
            vec![
                format!("{},", head.join(", ")),
                format!("{} or {}", tail[..tail.len() - 1].join(", "), tail[tail.len() - 1]),
            ]
        }
    };
    let height = 17.0 * lines.len() as f64 + 3.0;
    html! {
        rect class="plate ground" x="22%" width="56%" y=(y - height / 2.0) height=(height) {}
        @for (at, line) in lines.iter().enumerate() {
            text class="strong" x="50%" y=(y - height / 2.0 + 15.0 + 17.0 * at as f64) text-anchor="middle" { (line) }
        }
    }
}
