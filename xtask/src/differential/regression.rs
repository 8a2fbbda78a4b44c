//! A dialogue that differs, as the source text of a test. The test has the kernel's record, so that it runs without the kernel, and is
//! for the module `tests` of this file.

use super::dialogue::Dialogue;
use super::player::Record;

/// Returns the source text of a test that plays a dialogue with the stack, and compares the result with the kernel's record.
pub(crate) fn source(name: &str, dialogue: &Dialogue, kernel: &Record) -> String {
    let name: String = name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' }).collect();
    let dialogue: String = dialogue.to_string().lines().map(|line| format!("            {line}\n")).collect();
    // Each list of a record is a vector.
    let kernel = format!("{kernel:?}").replace('[', "vec![");
    format!(
        "    #[test]\n    fn {name}_agrees_with_the_kernel() {{\n        let dialogue = \"\n{dialogue}        \";\n        \
         let kernel = {kernel};\n        agrees(\"{name}\", dialogue, &kernel);\n    }}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::differential::packet::TcpOption::*;
    use crate::differential::player::Outcome::*;
    use crate::differential::player::{Reply, Sent};
    use crate::differential::rules::{self, Context};
    use crate::differential::{compare, ends, stack};

    /// Plays a dialogue with the stack, and asserts that the rules explain each difference from the kernel's record. Also asserts that
    /// the test is one that [`source`] prints, except for its layout, so that printed tests compile.
    fn agrees(name: &str, dialogue: &str, kernel: &Record) {
        let lines: String = dialogue.lines().map(|line| format!("{}\n", line.trim())).collect();
        let dialogue: Dialogue = lines.trim().parse().unwrap();
        let stack = stack::play(&dialogue, ends(7, &dialogue), &kernel.begun_us);
        let context = Context { dialogue: &dialogue, kernel, stack: &stack };
        let judge = |difference: &_| rules::judge(&context, difference).0;
        let difference = compare::compare(&dialogue, kernel, &stack, judge);
        assert!(difference.is_none(), "{}", difference.unwrap());
        let plain = |text: &str| text.replace([' ', '\n', ','], "");
        assert!(plain(include_str!("regression.rs")).contains(&plain(&source(name, &dialogue, kernel))));
    }

    #[test]
    fn seed_2314_agrees_with_the_kernel() {
        let dialogue = "
            ipv4
            +0 listen
            +0 peer S seq 0 win 1000 mss 1460 ws 0 cookie request
            +0 peer R seq 1 win 0
            +0 peer S seq 100000 win 1000 mss 1460 ws 0 cookie latest
            +0 peer . seq 100001 ack all win 64240
        ";
        let kernel = Record {
            outcomes: vec![Some(Done), None, None, None, None],
            begun_us: vec![61, 131, 249, 257, 280],
            sent: vec![
                Sent {
                    steps: 2,
                    at_us: 246,
                    reply: Reply {
                        bits: 18,
                        seq: 0,
                        ack: 1,
                        window: 64240,
                        len: 0,
                        urgent: 0,
                        options: vec![
                            Mss(1460),
                            NoOperation,
                            WindowScale(7),
                            Other(34, vec![0, 0, 0, 0, 0, 0, 0, 0]),
                            NoOperation,
                            NoOperation,
                        ],
                        hop_limit: 64,
                        service: 0,
                        dont_fragment: true,
                    },
                },
                Sent {
                    steps: 4,
                    at_us: 279,
                    reply: Reply {
                        bits: 18,
                        seq: 0,
                        ack: 100001,
                        window: 64240,
                        len: 0,
                        urgent: 0,
                        options: vec![Mss(1460), NoOperation, WindowScale(7)],
                        hop_limit: 64,
                        service: 0,
                        dont_fragment: true,
                    },
                },
            ],
            is_late: false,
            states: vec![],
        };
        agrees("seed_2314", dialogue, &kernel);
    }
}
