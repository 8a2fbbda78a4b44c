//! Definitions of the words on the first screen, in a fold below it.

use maud::{Markup, html};

/// The words with their definitions, in the order in which a reader meets them.
const TERMS: [(&str, &str); 20] = [
    ("rate", "units of work per second of the whole run: transactions (RR, CRR) or megabytes of payload (streams)."),
    ("CPU time per unit", "CPU time of the whole host, divided by the completed units."),
    (
        "other, not attributed",
        "CPU time outside client, router and server: softirq work that belongs to no packet, kernel threads and other programs; \
         CPU time that the accounting method could not charge to any component.",
    ),
    ("CPUs busy", "rate × CPU time per unit: how many CPUs worked on average."),
    (
        "RR, CRR, streams",
        "RR: request and response over an open connection. CRR: the same with a new connection for each request. Streams: data \
         in one direction. In a name such as rr-200-1000, the numbers are the bytes of request and response; strg is a stream \
         from the server.",
    ),
    ("pair", "one client and its server. With 5 pairs (in tables: x5), five connections carry the workload together."),
    (
        "path",
        "the networks and routers between client and server. The kernel's paths use Linux's network stack; siga's paths use siga's own stack.",
    ),
    ("MTU", "maximum transmission unit: the largest packet that a link carries, in bytes."),
    (
        "HiperSockets, virtual CTC",
        "two networks inside a z/VM host: a shared LAN and a channel between two guests. siga rebuilds both.",
    ),
    ("level", "a named set of settings. The levels 420 and 430 are named after two levels of TCP/IP for z/VM."),
    (
        "cell",
        "one workload with one number of pairs on one path, MTU and level. A row of the picture compares two cells.",
    ),
    ("figure", "one measured quantity of a cell, such as its rate, its p99 latency or its CPU time per unit."),
    ("trial, round", "a trial measures one cell once; a round is one trial of each cell."),
    ("disturbed round", "a round in which something else used the host. Its trials are left out."),
    (
        "95% interval",
        "the range of ratios with which the trials agree: 95 of 100 such intervals contain the true ratio.",
    ),
    ("noise floor", "how far the ratio of two equal sides can be from 1 in this cell."),
    ("better, worse", "the trials show a difference: p is below 0.05 after an adjustment for the number of figures."),
    ("equivalent", "the interval lies within 2% of 1: both sides are the same."),
    ("inconclusive", "the trials show neither a difference nor equivalence. More trials can decide it."),
    (
        "not comparable",
        "the sides differ in more than the compared setting, so their ratio has no meaning. More trials do not help.",
    ),
];

/// Returns the fold with the definitions.
pub(super) fn fold() -> Markup {
    html! {
        details class="terms" {
            summary { "Words on this page" }
            dl { @for (term, definition) in TERMS { dt { (term) } dd { (definition) } } }
        }
    }
}
