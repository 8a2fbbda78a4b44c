//! Checks that the reports of both sides of a connection agree with each other and with the script.
//!
//! If nothing may end a connection early, both sides must have received all bytes and the end of the stream. Otherwise, no byte
//! may arrive that was not sent. The end of a stream must come after all its bytes, and each reset must have a cause.

use siga_stack::tcp::Failure;

use super::{End, Last, Leeway, Report, Script};
use crate::trace::Side;

/// Checks the reports of all hosts.
///
/// # Errors
/// Returns a description of the first contradiction.
pub fn judge(scripts: &[Script], reports: &[Report]) -> Result<(), String> {
    let mut sides = vec![[None; 2]; scripts.len()];
    for report in reports {
        let slot = sides.get_mut(report.script).ok_or_else(|| format!("the report {report:?} belongs to no script"))?;
        let at = usize::from(report.side == Side::B);
        let leeway = scripts.get(report.script).map(|script| script.leeway);
        match slot[at] {
            None => slot[at] = Some(*report),
            // A second copy of the first bytes opened a second connection on side B. Side A had only one connection, so the two
            // reports of side B are combined.
            Some(first) if report.side == Side::B && leeway.is_some_and(|leeway| leeway.replayed) => {
                slot[at] = Some(Report {
                    written: first.written.max(report.written),
                    read: first.read.max(report.read),
                    ended: first.ended || report.ended,
                    shut: first.shut || report.shut,
                    ..first
                });
            }
            Some(other) => return Err(format!("the reports {other:?} and {report:?} are from the same side")),
        }
    }
    for (number, (script, sides)) in scripts.iter().zip(&sides).enumerate() {
        let [a, b] = sides;
        let a =
            a.ok_or_else(|| format!("script {number}: there is no report from the side that opens the connection"))?;
        judge_script(script, &a, b.as_ref()).map_err(|what| {
            format!("script {number}: {what}; script: {script:?}; report of side A: {a:?}; report of side B: {b:?}")
        })?;
    }
    Ok(())
}

fn judge_script(script: &Script, a: &Report, b: Option<&Report>) -> Result<(), &'static str> {
    // The listener answered with a SYN cookie and kept no state. If an acknowledgement arrives before the first bytes, the
    // listener answers the acknowledgement with a reset.
    if script.leeway.replayed && a.read == 0 && a.last == Last::Failed(Failure::Reset) {
        return b.map_or(Ok(()), |b| judge_stream(b, Some(a)));
    }
    if script.is_eligible() && b.is_none() {
        return Err("the other side has no report of this connection");
    }
    for (own, peer) in [(Some(a), b), (b, Some(a))] {
        let Some(own) = own else { continue };
        judge_stream(own, peer)?;
        judge_end(script, own, peer)?;
        if script.is_eligible() && !is_complete(script, own) {
            return Err("the exchange ended early, although neither the script nor a fault ends it");
        }
        if closes_well(script, own, peer) && peer.is_some_and(|peer| own.read != peer.written) {
            return Err("bytes that a program wrote before it closed the connection were lost");
        }
    }
    Ok(())
}

fn judge_stream(own: &Report, peer: Option<&Report>) -> Result<(), &'static str> {
    let sent = peer.map_or(0, |peer| peer.written);
    if own.read > sent {
        return Err("more bytes arrived than the other side had written");
    }
    if !own.ended {
        return Ok(());
    }
    match peer {
        Some(peer) if peer.shut && own.read == sent => Ok(()),
        Some(peer) if peer.shut => {
            Err("the stack reported the end of the stream before all of the peer's bytes had arrived")
        }
        Some(_) | None => Err("the stack reported the end of a stream that the peer program had not ended"),
    }
}

/// Checks that the way in which the connection ended for this side has a cause.
fn judge_end(script: &Script, own: &Report, peer: Option<&Report>) -> Result<(), &'static str> {
    let conduct = script.conduct(own.side);
    let aborts = matches!(conduct.end, End::AbortAfter(_));
    match own.last {
        Last::Closed if aborts => Err("a program closed the connection, but its script says reset"),
        Last::Closed if conduct.end == End::Close => Ok(()),
        Last::Closed if own.ended => Ok(()),
        Last::Closed => Err("the connection was closed before the stream had ended"),
        Last::Aborted if aborts => Ok(()),
        Last::Aborted => Err("a program reset the connection, but its script does not say reset"),
        Last::Failed(Failure::Reset) if script.leeway.refused || resets(script, peer) => Ok(()),
        Last::Failed(Failure::Reset) => Err("the connection was reset, but neither program had reset it"),
        Last::Failed(Failure::Refused) if script.leeway.refused || resets(script, peer) => Ok(()),
        Last::Failed(Failure::Refused) => Err("the connection was refused, but neither side had refused it"),
        Last::Failed(Failure::TimedOut) if script.leeway.timed_out => Ok(()),
        Last::Failed(Failure::TimedOut) => {
            Err("the connection timed out, although the script has no fault that delays it so long")
        }
        Last::Failed(Failure::Unreachable) => {
            Err("the connection was reported as unreachable, but no ICMP error had said so")
        }
        Last::Failed(Failure::Aborted) => {
            Err("the stack reported to a program the reset that the program itself had requested")
        }
    }
}

/// Returns true if the other side may have reset the connection. Its program may have reset it, its stack may have given up, or its
/// program may have closed with data unread or in flight.
fn resets(script: &Script, peer: Option<&Report>) -> bool {
    let Leeway { timed_out, lingers, .. } = script.leeway;
    let Some(peer) = peer else { return timed_out };
    let closes = script.conduct(peer.side).end == End::Close;
    match peer.last {
        Last::Aborted => true,
        Last::Closed => closes || timed_out || lingers,
        Last::Failed(_) => true,
    }
}

/// Returns true if this side reads to the end, and the other side closed after it had read everything that this side sent. In this
/// case the other side sends no reset, so this side must receive all bytes.
fn closes_well(script: &Script, own: &Report, peer: Option<&Report>) -> bool {
    let reads_all = matches!(script.conduct(own.side).end, End::Shutdown | End::AfterPeer);
    let closed = peer.is_some_and(|peer| peer.last == Last::Closed && peer.read == own.written);
    let Leeway { refused, timed_out, lingers, .. } = script.leeway;
    reads_all && closed && !(refused || timed_out || lingers)
}

fn is_complete(script: &Script, own: &Report) -> bool {
    let wanted = script.conduct(own.side.other()).bytes;
    own.last == Last::Closed && own.ended && own.read == wanted && own.written == script.conduct(own.side).bytes
}

#[cfg(test)]
mod tests {
    use siga_stack::time::Duration;

    use super::super::Conduct;
    use super::*;

    fn script(ends: [End; 2]) -> Script {
        let sides = ends.map(|end| Conduct {
            bytes: 10,
            write_bytes_max: 10,
            write_pause: Duration::ZERO,
            read_bytes_max: 10,
            read_pause: Duration::ZERO,
            turns: None,
            end,
        });
        Script { sides, leeway: Leeway::default() }
    }

    fn report(side: Side) -> Report {
        Report { script: 0, side, written: 10, read: 10, ended: true, shut: true, last: Last::Closed }
    }

    fn judged(script: Script, reports: &[Report]) -> Result<(), String> {
        judge(&[script], reports)
    }

    const CALM: [End; 2] = [End::Shutdown, End::AfterPeer];
    const RESET: Last = Last::Failed(Failure::Reset);

    #[test]
    fn what_both_sides_agree_on_is_right() {
        let [a, b] = [Side::A, Side::B].map(report);
        judged(script(CALM), &[b, a]).unwrap();
        // The one that closes has not read all; the other is reset in the midst.
        let closed = Report { read: 4, ended: false, ..a };
        let reset = Report { read: 7, written: 9, ended: false, shut: false, last: RESET, ..b };
        judged(script([End::Close, End::AfterPeer]), &[closed, reset]).unwrap();
        let aborted = Report { read: 0, written: 3, ended: false, shut: false, last: Last::Aborted, ..a };
        let early = script([End::AbortAfter(Duration::ZERO), End::Shutdown]);
        judged(early, &[aborted]).unwrap();
        judged(early, &[aborted, Report { read: 3, ended: false, last: RESET, ..b }]).unwrap();
    }

    #[test]
    fn what_cannot_be_is_found() {
        let [a, b] = [Side::A, Side::B].map(report);
        let close = script([End::Close, End::AfterPeer]);
        let abort = script([End::AbortAfter(Duration::ZERO), End::Shutdown]);
        let aborted = Report { read: 0, ended: false, shut: false, last: Last::Aborted, ..a };
        for (script, reports, what) in [
            (script(CALM), vec![a], "the other side has no report of this connection"),
            (script(CALM), vec![b], "no report from the side that opens"),
            (script(CALM), vec![a, a, b], "are from the same side"),
            (script(CALM), vec![Report { script: 1, ..a }], "belongs to no script"),
            (script(CALM), vec![a, Report { written: 9, ..b }], "more bytes arrived than the other side had written"),
            (script(CALM), vec![a, Report { read: 9, ..b }], "before all of the peer's bytes had arrived"),
            (script(CALM), vec![a, Report { read: 9, ended: false, ..b }], "closed before the stream had ended"),
            (script(CALM), vec![a, Report { last: RESET, ..b }], "neither program had reset it"),
            (script(CALM), vec![Report { last: Last::Aborted, ..a }, b], "its script does not say reset"),
            (abort, vec![a, b], "a program closed the connection"),
            (abort, vec![aborted, b], "the stack reported the end of a stream that the peer program had not ended"),
            (
                close,
                vec![Report { ended: false, ..a }, Report { read: 9, ended: false, last: RESET, ..b }],
                "were lost",
            ),
            (close, vec![a, Report { last: Last::Failed(Failure::TimedOut), ..b }], "the connection timed out"),
            (close, vec![a, Report { last: Last::Failed(Failure::Unreachable), ..b }], "reported as unreachable"),
            (close, vec![a, Report { last: Last::Failed(Failure::Aborted), ..b }], "the program itself had requested"),
            (
                script([End::Shutdown, End::Close]),
                vec![Report { last: Last::Failed(Failure::Refused), ..a }],
                "refused",
            ),
        ] {
            let error = judged(script, &reports).unwrap_err();
            assert!(error.contains(what), "{what}: {error}");
        }
    }
}
