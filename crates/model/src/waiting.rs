//! How a process waits for traffic: one enum for the command line, files and code.

use serde::{Deserialize, Serialize};

/// A waiting policy. Files may also contain the old spellings `blocking` and `polling`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Waiting {
    /// Sleeps in the kernel as soon as there is nothing to do.
    #[serde(alias = "blocking")]
    Block,
    /// Polls for as long as polling has saved sleeps, then yields the CPU, then sleeps. Only guests of siga's networks support it.
    #[default]
    Adaptive,
    /// Polls and never sleeps, which uses a whole CPU.
    #[serde(alias = "polling")]
    Poll,
}

impl Waiting {
    /// All policies, in the order of help texts.
    pub const ALL: [Self; 3] = [Self::Block, Self::Adaptive, Self::Poll];

    /// Returns the name of this policy on the command line and in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Adaptive => "adaptive",
            Self::Poll => "poll",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_policy_is_read_by_its_name_and_by_its_old_spelling() {
        let read = |text: &str| serde_json::from_value::<Waiting>(text.into()).ok();
        for waiting in Waiting::ALL {
            assert_eq!(read(waiting.name()), Some(waiting));
            assert_eq!(serde_json::to_value(waiting).unwrap(), waiting.name());
        }
        assert_eq!((read("blocking"), read("polling")), (Some(Waiting::Block), Some(Waiting::Poll)));
        assert_eq!(read("sleeping"), None);
    }
}
