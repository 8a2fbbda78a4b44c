//! Headers that are well formed, and headers that are not.

use proptest::prelude::*;

use super::*;

fn syn() -> Header {
    let timestamps = Some(Timestamps { value: 7, echo: 0 });
    let options = HeaderOptions {
        mss: Some(1460),
        window_scale: Some(7),
        sack_permitted: true,
        timestamps,
        ..HeaderOptions::default()
    };
    let flags = Flags { syn: true, ..Flags::default() };
    Header {
        source_port: 1,
        destination_port: 2,
        seq: SeqNumber(3),
        window: 64_240,
        flags,
        options,
        ..Header::default()
    }
}

// RFC 9293 MUST-4, MUST-14, MUST-68.
#[test]
fn a_syn_carries_its_options_in_the_order_of_linux() {
    let mut bytes = [0; HEADER_BYTES_MAX];
    syn().emit(&mut bytes);
    assert_eq!(bytes[20..40], [2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 7, 0, 0, 0, 0, 1, 3, 3, 7]);
    assert_eq!(Header::parse(&bytes[..40]), Ok((syn(), 40)));
}

#[test]
fn a_tcp_header_with_a_false_length_is_dropped() {
    let mut bytes = [0; 40];
    syn().emit(&mut bytes);
    assert_eq!(Header::parse(&bytes[..19]), Err(TcpDrop::Truncated));
    assert_eq!(Header::parse(&bytes[..39]), Err(TcpDrop::BadOffset));
    bytes[12] = 0x40;
    assert_eq!(Header::parse(&bytes), Err(TcpDrop::BadOffset));
    bytes[12] = 0xf0;
    assert_eq!(Header::parse(&bytes), Err(TcpDrop::BadOffset));
}

fn options(bytes: &[u8], syn: bool) -> Result<HeaderOptions, TcpDrop> {
    let mut options = HeaderOptions::default();
    options.parse(bytes, syn).map(|()| options)
}

// RFC 9293 MUST-6, MUST-7, MUST-65.
#[test]
fn a_tcp_option_with_a_false_length_is_dropped() {
    for options in [[2, 0, 0, 0], [2, 1, 0, 0], [2, 5, 0, 0], [1, 1, 1, 8], [254, 255, 0, 0]] {
        let mut bytes = [0; 24];
        Header::default().emit(&mut bytes);
        bytes[12] = 0x60;
        bytes[20..].copy_from_slice(&options);
        assert_eq!(Header::parse(&bytes), Err(TcpDrop::BadOption), "{options:?}");
    }
    // An unknown kind, and a known one of a wrong length, say nothing.
    assert_eq!(options(&[254, 4, 9, 9, 3, 4, 1, 1], true), Ok(HeaderOptions::default()));
    // What belongs to a SYN says nothing elsewhere.
    assert_eq!(options(&[2, 4, 0, 1, 3, 3, 9, 4, 2], false), Ok(HeaderOptions::default()));
    // Nor do blocks in a SYN, or half a block anywhere.
    assert_eq!(options(&[5, 10, 0, 0, 0, 1, 0, 0, 0, 9], true), Ok(HeaderOptions::default()));
    assert_eq!(options(&[5, 14, 0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0, 20], false), Ok(HeaderOptions::default()));
    assert_eq!(options(&[3, 3, 200], true).map(|options| options.window_scale), Ok(Some(14)));
}

// RFC 9293 MUST-5, MUST-64.
#[test]
fn tcp_options_are_read_in_any_segment_at_any_offset() {
    let timestamps = Some(Timestamps { value: 0x0102_0304, echo: 5 });
    for place in 0..4 {
        let option = [&[1; 3][..place], &[8, 10, 1, 2, 3, 4, 0, 0, 0, 5]].concat();
        for syn in [false, true] {
            assert_eq!(options(&option, syn).map(|options| options.timestamps), Ok(timestamps), "{place}");
        }
    }
    assert_eq!(options(&[1, 2, 4, 5, 180], true).map(|options| options.mss), Ok(Some(1_460)));
}

// RFC 9293 MUST-69.
#[test]
fn only_zeros_follow_the_last_tcp_option() {
    let timestamps = Timestamps { value: u32::MAX, echo: u32::MAX };
    for choice in 0..16 {
        let options = HeaderOptions {
            mss: (choice & 1 > 0).then_some(1_460),
            window_scale: (choice & 2 > 0).then_some(7),
            sack_permitted: choice & 4 > 0,
            timestamps: (choice & 8 > 0).then_some(timestamps),
            ..HeaderOptions::default()
        };
        let header = Header { options, ..syn() };
        let mut bytes = [0xff; HEADER_BYTES_MAX];
        header.emit(&mut bytes);
        assert_eq!((usize::from(bytes[12] >> 4) * 4, bytes[12] & 15), (header.header_bytes(), 0), "{choice}");
        assert_eq!(bytes[16..20], [0; 4], "neither checksum nor urgent pointer");
        let mut rest = &bytes[20..header.header_bytes()];
        while let [1..=u8::MAX, ..] = rest {
            rest = if rest[0] == 1 { &rest[1..] } else { &rest[usize::from(rest[1])..] };
        }
        assert!(rest.iter().all(|byte| *byte == 0), "{choice}");
    }
    // What a peer writes behind the end of its options is not looked at.
    assert_eq!(options(&[0, 2, 4, 5, 180, 8, 99], true), Ok(HeaderOptions::default()));
}

#[test]
fn the_fast_parser_accepts_only_an_acknowledgement_with_at_most_timestamps() {
    const PORTS: Ports = Ports { source: 4, destination: 5 };
    let stamped = Some(Timestamps { value: 7, echo: 8 });
    for (push, timestamps) in [(false, None), (true, None), (false, stamped), (true, stamped)] {
        let fast = FastHeader { seq: SeqNumber(1), ack: SeqNumber(2), window: 3, push, timestamps, len: 0 };
        let mut bytes = [0; HEADER_BYTES_MAX];
        let (len, _) = fast.emit(PORTS, false, &mut bytes);
        let read = FastHeader::parse(&bytes).map(|(header, len)| (format!("{header:?}"), len));
        assert_eq!(read, Some((format!("{fast:?}"), len)));
        for bit in [FIN, SYN, RST, ACK, URG, ECE, CWR] {
            bytes[13] ^= bit;
            assert!(FastHeader::parse(&bytes).is_none(), "{bit}");
            bytes[13] ^= bit;
        }
    }
}

#[test]
fn a_segment_without_a_connection_is_answered_by_a_reset_that_its_sender_accepts() {
    let reset = syn().reset(10).unwrap();
    assert_eq!((reset.seq, reset.ack), (SeqNumber(0), Some(SeqNumber(14))));
    let mut segment = syn();
    segment.ack = Some(SeqNumber(99));
    let reset = segment.reset(10).unwrap();
    assert_eq!((reset.seq, reset.ack, reset.source_port), (SeqNumber(99), None, 2));
    assert_eq!(reset.reset(0), None);
}

proptest! {
    #[test]
    fn random_bytes_parse_as_a_segment_or_are_dropped(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        if let Ok((header, len)) = Header::parse(&bytes) {
            prop_assert!(len <= bytes.len() && header.options.sack.as_slice().len() <= 4);
        }
    }

    #[test]
    fn a_written_tcp_header_is_read_back(seq: u32, ack: Option<u32>, sack in proptest::collection::vec(any::<(u32, u32)>(), 0..4)) {
        let urgent = ack.and_then(|ack| u16::try_from(ack >> 20).ok());
        let mut header = Header { seq: SeqNumber(seq), ack: ack.map(SeqNumber), urgent, ..Header::default() };
        header.options.timestamps = Some(Timestamps { value: seq, echo: 1 });
        for (start, end) in sack {
            header.options.sack.push(Block { start: SeqNumber(start), end: SeqNumber(end) });
        }
        let mut bytes = [0; HEADER_BYTES_MAX];
        header.emit(&mut bytes);
        prop_assert_eq!(Header::parse(&bytes), Ok((header, header.header_bytes())));
    }
}

// RFC 7413 section 4.1.1.
#[test]
fn a_fast_open_option_has_an_even_cookie_of_four_to_sixteen_bytes_or_none() {
    let cookie: Vec<u8> = (1..=20).collect();
    for len in 0..=20 {
        let mut bytes = vec![34, u8::try_from(len + 2).unwrap()];
        bytes.extend(&cookie[..len]);
        let allowed = matches!(len, 0 | 4 | 6 | 8 | 10 | 12 | 14 | 16);
        let option = options(&bytes, true).unwrap().fast_open;
        assert_eq!(option.map(|option| option.cookie().to_vec()), allowed.then(|| cookie[..len].to_vec()), "{len}");
        assert_eq!(option.is_some_and(|option| option.is_request()), len == 0);
        assert_eq!(options(&bytes, false).unwrap().fast_open, None, "only a SYN has the option");
        assert_eq!(options(&bytes[..bytes.len() - 1], true), Err(TcpDrop::BadOption));
        if allowed {
            let mut header = syn();
            header.options.fast_open = FastOpenOption::new(&cookie[..len]);
            let mut written = [0; HEADER_BYTES_MAX];
            header.emit(&mut written);
            assert_eq!(Header::parse(&written), Ok((header, header.header_bytes())), "{len}");
            assert_eq!(header.header_bytes() % 4, 0);
        }
    }
}

// RFC 9768 section 3.2.3.
#[test]
fn options_of_accurate_ecn_are_read_in_both_orders_and_in_each_length() {
    let read = |option: &[u8]| {
        let mut bytes = [0; 36];
        Header { ack: Some(SeqNumber(1)), ..Header::default() }.emit(&mut bytes);
        bytes[12] = 9 << 4;
        bytes[20..20 + option.len()].copy_from_slice(option);
        Header::parse(&bytes).unwrap().0.options.accurate_ecn
    };
    let all = [0, 0, 1, 0, 1, 0, 1, 0, 0];
    let option = |marked, capable_0, capable_1| Some(AccurateEcnOption { marked, capable_0, capable_1 });
    assert_eq!(read(&[&[172, 11][..], &all].concat()), option(Some(256), Some(1), Some(65_536)));
    assert_eq!(read(&[&[174, 11][..], &all].concat()), option(Some(256), Some(65_536), Some(1)));
    assert_eq!(read(&[&[172, 8][..], &all[..6]].concat()), option(Some(256), Some(1), None));
    assert_eq!(read(&[&[174, 5][..], &all[..3]].concat()), option(None, None, Some(1)));
    assert_eq!(read(&[172, 2]), option(None, None, None));
    assert_eq!(read(&[172, 4, 0, 0]), None, "no length of the option");
    // What is written is read again, and AE is a flag of its own.
    let accurate_ecn = Some(AccurateEcnOption::new(u32::MAX, 5, 1 << 24));
    let options = HeaderOptions { accurate_ecn, ..HeaderOptions::default() };
    for ae in [false, true] {
        let header = Header { flags: Flags { ae, ..Flags::default() }, options, ..Header::default() };
        let mut bytes = [0; HEADER_BYTES_MAX];
        header.emit(&mut bytes);
        assert_eq!(Header::parse(&bytes), Ok((header, 32)));
    }
    assert_eq!(accurate_ecn, option(Some(0xff_ffff), Some(5), Some(0)));
    assert_eq!(AccurateEcnOption::increase(Some(3), 0xff_fffe), Some(5));
    assert_eq!(AccurateEcnOption::increase(Some(3), 5), Some(0), "an old option");
}
