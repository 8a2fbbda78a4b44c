//! Sizes of HiperSockets frames. A machine's configuration sets the size; it limits the MTU to 8 KB less.

use serde::{Deserialize, Serialize};

/// Size of the frames of a HiperSockets network or a Guest LAN of type HiperSockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Frame {
    /// 16 KB: MTU of at most 8,192 bytes.
    #[serde(rename = "16K")]
    K16,
    /// 24 KB: MTU of at most 16,384 bytes.
    #[serde(rename = "24K")]
    K24,
    /// 40 KB: MTU of at most 32,768 bytes.
    #[serde(rename = "40K")]
    K40,
    /// 64 KB: MTU of at most 57,344 bytes.
    #[serde(rename = "64K")]
    K64,
}

impl Frame {
    /// Returns the size as topologies and levels write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::K16 => "16K",
            Self::K24 => "24K",
            Self::K40 => "40K",
            Self::K64 => "64K",
        }
    }

    /// Returns the largest MTU: the size of the frame less 8 KB.
    pub fn mtu_max(self) -> u32 {
        match self {
            Self::K16 => 8 << 10,
            Self::K24 => 16 << 10,
            Self::K40 => 32 << 10,
            Self::K64 => 56 << 10,
        }
    }
}
