//! The state of BBR in the fields and units of Linux (`struct tcp_bbr_info`), as [`BbrInfo`].

use super::Bbr;

/// Size of `struct tcp_bbr_info`, in bytes.
const BBR_INFO_BYTES: usize = 20;
/// A gain of 1 in Linux.
const GAIN_ONE: u64 = 256;

/// The fields of Linux's `struct tcp_bbr_info`, which `getsockopt` with `TCP_CC_INFO` returns for connections with BBR.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BbrInfo {
    /// Estimate of the bandwidth (bytes per second).
    pub bandwidth: u64,
    /// Minimum RTT (us). `u32::MAX` before the first sample.
    pub min_rtt: u32,
    /// Pacing rate over the bandwidth, times 256.
    pub pacing_gain: u32,
    /// cwnd over the bandwidth-delay product, times 256.
    pub cwnd_gain: u32,
}

impl BbrInfo {
    /// Returns the bytes of `struct tcp_bbr_info`, in the byte order of this host.
    pub fn to_bytes(&self) -> [u8; BBR_INFO_BYTES] {
        let low = |bits: u64| u32::try_from(bits & u64::from(u32::MAX)).unwrap_or(0);
        let fields = [low(self.bandwidth), low(self.bandwidth >> 32), self.min_rtt, self.pacing_gain, self.cwnd_gain];
        let mut bytes = [0; BBR_INFO_BYTES];
        bytes.copy_from_slice(fields.map(u32::to_ne_bytes).as_flattened());
        bytes
    }

    /// Reads the bytes of `struct tcp_bbr_info`, in the byte order of this host.
    pub fn from_bytes(bytes: &[u8; BBR_INFO_BYTES]) -> Self {
        let mut fields = [0; BBR_INFO_BYTES / 4];
        for (field, bytes) in fields.iter_mut().zip(bytes.as_chunks::<4>().0) {
            *field = u32::from_ne_bytes(*bytes);
        }
        let [low, high, min_rtt, pacing_gain, cwnd_gain] = fields;
        Self { bandwidth: u64::from(high) << 32 | u64::from(low), min_rtt, pacing_gain, cwnd_gain }
    }
}

impl Bbr {
    pub(in crate::tcp) fn linux_info(&self) -> BbrInfo {
        let gain = |percent: u64| u32::try_from(percent * GAIN_ONE / 100).unwrap_or(u32::MAX);
        let us = self.model.min_rtt.map(|rtt| rtt.as_nanos() / 1_000);
        BbrInfo {
            bandwidth: self.model.bandwidth(),
            min_rtt: us.map_or(u32::MAX, |us| u32::try_from(us).unwrap_or(u32::MAX)),
            pacing_gain: gain(self.phases.pacing_gain()),
            cwnd_gain: gain(self.phases.window_gain()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_the_state_of_bbr_keep_their_values_in_bytes() {
        let bytes: [u8; BBR_INFO_BYTES] = std::array::from_fn(|at| u8::try_from(at + 1).unwrap());
        let info = BbrInfo::from_bytes(&bytes);
        assert_eq!(info.to_bytes(), bytes);
        assert_eq!(info.min_rtt, u32::from_ne_bytes([9, 10, 11, 12]));
        if cfg!(target_endian = "little") {
            assert_eq!(info.bandwidth, u64::from_le_bytes([1, 2, 3, 4, 5, 6, 7, 8]));
        }
    }
}
