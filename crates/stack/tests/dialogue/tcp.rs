//! TCP sockets through whole stacks: opening, moving bytes, closing, and everything between.

use crate::net::{Link, Net, PLAIN, content};
use siga_stack::device::Agreed;
use siga_stack::tcp::StateName;
use siga_stack::time::Duration;

const ALL_AGREED: Agreed = Agreed { checksum_unfilled: true, large_segments: true };

fn rows() -> Vec<Vec<Link>> {
    let with = |mtu, agreed, ethernet| Link { mtu, agreed, ethernet };
    vec![
        vec![PLAIN],
        vec![with(57_344, ALL_AGREED, false)],
        vec![PLAIN, PLAIN],
        vec![with(1_500, ALL_AGREED, false), PLAIN],
        vec![with(8_992, ALL_AGREED, false), with(1_500, ALL_AGREED, true), with(1_280, Agreed::default(), false)],
    ]
}

#[test]
fn a_request_is_answered_over_every_row_of_links() {
    for (row, links) in rows().iter().enumerate() {
        for v6 in [false, true] {
            let mut net = Net::new(links);
            let listener = net.listen(v6, 80, 10);
            let (here, there) = net.open(v6, 80, listener);
            let last = net.stacks.len() - 1;
            for bytes in [200, 1_000, 70_000, 1_000_000] {
                let question = content(bytes);
                assert_eq!(net.stream((0, here), (last, there), &question), question, "row {row}, {bytes} bytes");
                assert_eq!(net.stream((last, there), (0, here), &question), question, "row {row}, {bytes} bytes");
            }
            let now = net.now;
            net.first().tcp_shutdown(now, here).unwrap();
            net.cross();
            assert_eq!(net.last().tcp_receive(now, there, &mut [0; 9]), Ok(Some(0)));
            net.last().tcp_close(now, there).unwrap();
            net.cross();
            assert_eq!(net.first().tcp_receive(now, here, &mut [0; 9]), Ok(Some(0)));
            assert_eq!(net.first().tcp_state(here), Ok(StateName::TimeWait));
            net.first().tcp_close(now, here).unwrap();
            net.pass(Duration::from_secs(61));
            assert_eq!(net.dropped(), []);
        }
    }
}
