//! What the coordinator and the keeper of a path say to each other: one line of JSON each way, request then answer.
//!
//! The pipe itself is the lease on the path: its end is the order to leave.

use super::PathSpec;
use crate::error::{Error, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Longest line either side accepts; a built path of three namespaces takes about 4 KB.
pub(super) const LINE_BYTES_MAX: usize = 1 << 20;

/// What the coordinator asks for.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Request {
    /// Build the path; the first request and the only one of its kind.
    Build {
        /// What to build.
        spec: PathSpec,
        /// Process id of the coordinator, so that the keeper can tell whether it was orphaned before it could watch.
        parent: u32,
    },
    /// Read the counters of every interface.
    Counters,
}

/// What the keeper answers: `{"ok": ...}` or `{"error": {"kind", "message", "hint"}}`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Answer<T> {
    Ok(T),
    Error(Error),
}

/// The line for a request.
pub(super) fn request_line(request: &Request) -> Result<Vec<u8>> {
    line(request)
}

/// The request in a line.
pub(super) fn parse_request(line: &[u8]) -> Result<Request> {
    serde_json::from_slice(line).map_err(|error| Error::usage(format!("not a request to a keeper: {error}")))
}

/// The line for an answer.
pub(super) fn answer_line<T: Serialize>(outcome: Result<T>) -> Result<Vec<u8>> {
    line(&match outcome {
        Ok(value) => Answer::Ok(value),
        Err(error) => Answer::Error(error),
    })
}

/// The answer in a line.
pub(super) fn parse_answer<T: DeserializeOwned>(line: &[u8]) -> Result<T> {
    match serde_json::from_slice(line) {
        Ok(Answer::Ok(value)) => Ok(value),
        Ok(Answer::Error(error)) => Err(error),
        Err(error) => Err(Error::environment(format!("not an answer of a keeper: {error}"))
            .hint("the program started as keeper must be this very siga")),
    }
}

fn line(message: &impl Serialize) -> Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)
        .map_err(|error| Error::environment(format!("cannot write a message of the keeper: {error}")))?;
    line.push(b'\n');
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_crosses_the_pipe_unchanged() {
        let line = answer_line(Ok(vec![1, 2, 3])).unwrap();
        assert_eq!(line.last(), Some(&b'\n'));
        assert_eq!(parse_answer::<Vec<i32>>(&line).unwrap(), [1, 2, 3]);
    }

    #[test]
    fn an_error_keeps_its_kind_message_and_hint() {
        let error = Error::environment("no bridge").hint("modprobe bridge");
        let line = answer_line::<()>(Err(error.clone())).unwrap();
        assert_eq!(
            String::from_utf8(line.clone()).unwrap().trim_end(),
            r#"{"error":{"kind":"environment","message":"no bridge","hint":"modprobe bridge"}}"#
        );
        assert_eq!(parse_answer::<()>(&line).unwrap_err(), error);
    }

    #[test]
    fn anything_else_is_refused() {
        assert!(parse_request(b"veth").is_err());
        assert!(parse_answer::<()>(b"").is_err());
    }
}
