//! [`LinuxInfo`] as the bytes of Linux's `struct tcp_info`, as `getsockopt` with `TCP_INFO` returns them.

use super::LinuxInfo;

/// Size of `struct tcp_info`, in bytes.
const TCP_INFO_BYTES: usize = 248;

/// The byte with `tcpi_snd_wscale` and `tcpi_rcv_wscale`, of four bits each.
const SCALES_AT: usize = 6;
/// The byte with `tcpi_delivery_rate_app_limited`, of one bit.
const APP_LIMITED_AT: usize = 7;
/// The bit of `tcpi_delivery_rate_app_limited`.
const APP_LIMITED: u8 = if cfg!(target_endian = "little") { 1 } else { 1 << 7 };
/// `tcpi_total_rto`, of 16 bits.
const TOTAL_RTO_AT: usize = 240;

/// Copies as many bytes of a number as `bytes` has from `at`, and 0 for the others. An older kernel returns fewer bytes.
fn number<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut number = [0; N];
    if let Some(known) = bytes.get(at..at + N) {
        number.copy_from_slice(known);
    }
    number
}

/// Implements both conversions for the fields of `struct tcp_info` that begin at a byte and have the same type in [`LinuxInfo`].
macro_rules! fields {
    ($($at:literal $field:ident $type:ty,)*) => {
        impl LinuxInfo {
            /// Returns the bytes of `struct tcp_info`, in the byte order of this host. Fields that the stack does not measure are 0.
            pub fn to_bytes(&self) -> [u8; TCP_INFO_BYTES] {
                let mut bytes = [0; TCP_INFO_BYTES];
                $(bytes[$at..$at + size_of::<$type>()].copy_from_slice(&self.$field.to_ne_bytes());)*
                bytes[SCALES_AT] = if cfg!(target_endian = "little") {
                    self.snd_wscale | self.rcv_wscale << 4
                } else {
                    self.snd_wscale << 4 | self.rcv_wscale
                };
                bytes[APP_LIMITED_AT] = if self.delivery_rate_app_limited { APP_LIMITED } else { 0 };
                let timeouts = u16::try_from(self.total_rto).unwrap_or(u16::MAX);
                bytes[TOTAL_RTO_AT..TOTAL_RTO_AT + 2].copy_from_slice(&timeouts.to_ne_bytes());
                bytes
            }

            /// Reads the bytes of `struct tcp_info`, in the byte order of this host. Fields that lie behind the last byte are 0.
            pub fn from_bytes(bytes: &[u8]) -> Self {
                let [scales] = number(bytes, SCALES_AT);
                let [limited] = number(bytes, APP_LIMITED_AT);
                let (low, high) = (scales & 15, scales >> 4);
                let little = cfg!(target_endian = "little");
                Self {
                    $($field: <$type>::from_ne_bytes(number(bytes, $at)),)*
                    snd_wscale: if little { low } else { high },
                    rcv_wscale: if little { high } else { low },
                    delivery_rate_app_limited: limited & APP_LIMITED != 0,
                    total_rto: u16::from_ne_bytes(number(bytes, TOTAL_RTO_AT)).into(),
                }
            }
        }
    };
}

fields! {
    0 state u8,
    1 ca_state u8,
    2 retransmits u8,
    3 probes u8,
    4 backoff u8,
    5 options u8,
    8 rto u32,
    12 ato u32,
    16 snd_mss u32,
    20 rcv_mss u32,
    24 unacked u32,
    28 sacked u32,
    32 lost u32,
    36 retrans u32,
    44 last_data_sent u32,
    52 last_data_recv u32,
    56 last_ack_recv u32,
    60 pmtu u32,
    64 rcv_ssthresh u32,
    68 rtt u32,
    72 rttvar u32,
    76 snd_ssthresh u32,
    80 snd_cwnd u32,
    84 advmss u32,
    88 reordering u32,
    92 rcv_rtt u32,
    96 rcv_space u32,
    100 total_retrans u32,
    104 pacing_rate u64,
    120 bytes_acked u64,
    128 bytes_received u64,
    136 segs_out u32,
    140 segs_in u32,
    144 notsent_bytes u32,
    148 min_rtt u32,
    152 data_segs_in u32,
    156 data_segs_out u32,
    160 delivery_rate u64,
    168 busy_time u64,
    176 rwnd_limited u64,
    184 sndbuf_limited u64,
    192 delivered u32,
    196 delivered_ce u32,
    200 bytes_sent u64,
    208 bytes_retrans u64,
    216 dsack_dups u32,
    220 reord_seen u32,
    224 rcv_ooopack u32,
    228 snd_wnd u32,
    232 rcv_wnd u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_tcp_info_keep_their_values_in_bytes_and_a_shorter_struct_leaves_fields_0() {
        // The fields of the struct that `LinuxInfo` lacks: fackets, last_ack_sent, max_pacing_rate, rehash and the times of timeouts.
        let absent = [7..8, 40..44, 48..52, 112..120, 236..240, 242..248];
        let mut bytes: [u8; TCP_INFO_BYTES] = std::array::from_fn(|at| u8::try_from(at + 1).unwrap());
        absent.into_iter().flatten().for_each(|at| bytes[at] = 0);
        let info = LinuxInfo::from_bytes(&bytes);
        assert_eq!(info.to_bytes(), bytes);
        let limited = LinuxInfo { delivery_rate_app_limited: true, ..info };
        assert_eq!(LinuxInfo::from_bytes(&limited.to_bytes()), limited);
        assert_eq!((info.snd_wscale, info.rcv_wscale), (7, 0));
        assert_eq!(info.rcv_wnd, u32::from_ne_bytes([233, 234, 235, 236]));
        let old = LinuxInfo::from_bytes(&bytes[..104]);
        assert_eq!((old.total_retrans, old.bytes_acked), (info.total_retrans, 0));
        assert_eq!(LinuxInfo { total_rto: 70_000, ..info }.to_bytes()[240..242], [255; 2]);
    }
}
