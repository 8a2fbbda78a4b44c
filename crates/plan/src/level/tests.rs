//! Tests of levels.

use super::*;

#[test]
fn short_forms_are_levels_with_their_own_names() {
    for (text, name) in
        [("args:-O3 -g", "-O3 -g"), ("args:", "no arguments"), ("program:./a", "._a"), ("cpus:0-1,3", "cpus:0-1_3")]
    {
        assert_eq!(Level::load(text).unwrap().name, name);
    }
    for text in ["cpus:x", "cpus:", "program:", "args:'a"] {
        assert_eq!(Level::load(text).unwrap_err().exit_status(), 2, "{text}");
    }
}

#[test]
fn shipped_levels_are_sound_and_carry_their_own_names() {
    for name in Level::names() {
        let level = Level::load(name).unwrap();
        assert_eq!(level.name, name);
        assert!(!level.about.is_empty(), "level {name} has no description");
    }
}

#[test]
fn the_levels_of_the_report_on_virtual_ctc_differ_in_the_copies_and_have_its_names() {
    let [older, newer] = ["VM/ESA 2.4.0", "z/VM 3.1.0"].map(|name| Level::load(name).unwrap());
    assert_eq!((older.name.as_str(), newer.name.as_str()), ("vmesa-2.4.0", "zvm-3.1.0"));
    let mut guests = older.guests.unwrap();
    assert!(!guests.features.copy_once && !guests.features.zero_copy);
    (guests.features.copy_once, guests.features.zero_copy) = (true, true);
    assert_eq!(Some(guests), newer.guests);
}

#[test]
fn a_level_with_a_wrong_value_is_refused_with_a_hint() {
    for text in [
        "name = \"\"",
        "name = \"a,b\"",
        "name = \"x\"\nbig_tcp_bytes = 65536",
        "name = \"x\"\nmtu = 87",
        "name = \"x\"\nmtu = 65537",
        "name = \"x\"\nmtu = \"1500\"",
        "name = \"x\"\nnftables = \" \\n\"",
        "name = \"x\"\nnftables = \"include \\\"/etc/hostname\\\"\"",
        "name = \"x\"\nnftables = \"# \\u001b[31m\"",
        "name = \"x\"\nnftables = \"flush ruleset\\u0000\"",
        "name = \"x\"\nqdisc = \"tbf\"",
        "name = \"x\"\nqdisc = \"netem\"",
        "name = \"x\"\nrate_bits_per_s = 1000000",
        "name = \"x\"\nqdisc = \"fq\"\n[qdisc.netem]\ndelay_us = 1",
        "name = \"x\"\n[qdisc.netem]\n",
        "name = \"x\"\n[qdisc.netem]\ndelay = 10",
        "name = \"x\"\n[qdisc.netem]\ndelay_us = -1",
        "name = \"x\"\n[qdisc.netem]\ndelay_us = 10000001",
        "name = \"x\"\n[qdisc.netem]\ndelay_us = 10\njitter_us = 11",
        "name = \"x\"\n[qdisc.netem]\nqueue_packets = 10",
        "name = \"x\"\n[qdisc.netem]\ndelay_us = 10\nqueue_packets = 0",
        "name = \"x\"\n[qdisc.netem]\nloss_percent = nan",
        "name = \"x\"\n[qdisc.netem]\nloss_percent = -0.5",
        "name = \"x\"\n[qdisc.netem]\nloss_percent = 50.5",
        "name = \"x\"\n[qdisc.netem]\nloss_percent = \"1%\"",
        "name = \"x\"\n[qdisc.netem]\nrate_bits_per_s = 999",
        "name = \"x\"\n[plant]\nclient = 5.0",
        "name = \"x\"\n[plant]\nclient_us = -1.0",
        "name = \"x\"\n[plant]\nrouter_us = 51.0",
        "name = \"x\"\n[plant]\ndelay_us = nan",
        "name = \"x\"\n[sysctl]\n\"kernel.panic\" = \"1\"",
        "name = \"x\"\n[sysctl]\n\"net..ipv4\" = \"1\"",
        "name = \"x\"\n[sysctl]\n\"net./../../tmp/x\" = \"1\"",
    ] {
        let error = Level::parse(text, "test").unwrap_err();
        assert_eq!(error.exit_status(), 2, "{text}");
        assert!(error.to_string().contains('\n'), "{text} has no way out: {error}");
    }
    assert_eq!(Level::load("nosuch").unwrap_err().exit_status(), 2);
}

#[test]
fn each_feature_of_the_guests_can_be_switched_by_name() {
    let (old, new) = (Level::load("420").unwrap(), Level::load("430").unwrap());
    let (plain, all) = (old.guests.unwrap(), new.guests.unwrap());
    assert!(plain.features.named().iter().all(|(_, is_on)| !is_on));
    // Direct connections are measured by `430+direct`.
    assert!(all.features.named().iter().all(|(name, is_on)| *is_on == (*name != "direct")));
    let features: Vec<&str> = all.features.named().iter().map(|(name, _)| *name).collect();
    assert_eq!(Guests::FEATURES[..features.len()], features);
    for feature in Guests::FEATURES {
        let less = if feature == "direct" { "430+direct".to_owned() } else { format!("430-{feature}") };
        let more = format!("420+{feature}");
        let (more, less) = (Level::load(&more).unwrap(), Level::load(&less).unwrap());
        assert!(!more.sets_the_same(&old) && !less.sets_the_same(&new), "{feature}");
        let back = Level::load(&format!("420+{feature}-{feature}")).unwrap();
        assert!(back.sets_the_same(&old), "{feature}");
    }
    let of_430 = Guests::FEATURES.iter().filter(|feature| **feature != "direct");
    let every = of_430.fold("420".to_owned(), |name, feature| format!("{name}+{feature}"));
    let every = Level::load(&every).unwrap().guests.unwrap();
    assert_eq!((every.features, every.full), (all.features, all.full));
    let both = Level::load("430-adaptive_waiting-colocate").unwrap().guests.unwrap();
    assert_eq!((both.waiting, both.features.colocate), (Some(Waiting::Block), false));
    assert!(Level::load("reno+packing").unwrap_err().to_string().contains("does not configure siga's own networks"));
    assert_eq!(Level::load("nosuch+packing").unwrap_err().exit_status(), 2);
}

#[test]
fn a_variant_of_a_level_in_a_file_has_the_name_of_its_level() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file.toml");
    std::fs::write(&file, "name = \"mine\"\n[guests]\n").unwrap();
    let varied = Level::load(&format!("{}-packing", file.display())).unwrap();
    assert_eq!((varied.name.as_str(), varied.guests.unwrap().features.packing), ("mine-packing", false));
    assert_eq!(Variant::of(&varied.name), Some(Variant { base: "mine", feature: "packing", with: false }));
}

#[test]
fn old_spellings_are_read_with_a_notice() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file.toml");
    std::fs::write(&file, "name = \"mine\"\n[guests]\nwaiting = \"polling\"\n").unwrap();
    let name = format!("{}-gather", file.display());
    let guests = Level::load(&name).unwrap().guests.unwrap();
    assert_eq!((guests.waiting, guests.features.colocate), (Some(Waiting::Poll), false));
    let notices = Level::notices(&name);
    assert!(notices.len() == 2 && notices[0].contains("`colocate`") && notices[1].contains("\"poll\""), "{notices:?}");
    assert_eq!(Level::notices("430-colocate"), [""; 0]);
}

#[test]
fn a_file_of_nft_is_a_level_and_a_bad_one_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let file = directory.path().join(name);
        std::fs::write(&file, text).unwrap();
        file.display().to_string()
    };
    let rules = "table ip x { chain y { type filter hook forward priority 0; } }\n";
    let level = Level::load(&file("office.nft", rules)).unwrap();
    assert_eq!((level.name.as_str(), level.settings()), ("office", vec!["nftables"]));
    assert_eq!(level.nftables.as_deref(), Some(rules));
    for (name, text, words) in [
        ("empty.nft", " \n", "the nftables ruleset is empty"),
        ("other.nft", "include \"/etc/shadow\"\n", "the word `include`"),
        ("escape.nft", "\u{1b}[2J", "control characters"),
        ("plain.nft", rules, "the same name as siga's level plain"),
        ("a,b.nft", rules, "is not a valid name for a level"),
    ] {
        let error = Level::load(&file(name, text)).unwrap_err();
        assert_eq!(error.exit_status(), 2, "{name}");
        assert!(error.to_string().contains(words), "{name}: {error}");
    }
    let absent = Level::load("absent.nft").unwrap_err();
    assert!(absent.to_string().contains("cannot read the packet filter absent.nft"), "{absent}");
    let long = file("long.nft", &"#".repeat(limits::RULESET_BYTES_MAX + 1));
    assert!(Level::load(&long).is_err());
}

#[test]
fn a_ruleset_has_a_greatest_length() {
    let ruleset = |bytes: usize| Level { nftables: Some("#".repeat(bytes)), name: "x".into(), ..Level::default() };
    assert!(ruleset(limits::RULESET_BYTES_MAX).check().is_ok());
    let error = ruleset(limits::RULESET_BYTES_MAX + 1).check().unwrap_err();
    assert!(error.to_string().contains("65536"), "{error}");
}

#[test]
fn the_level_aa_sets_the_same_as_plain() {
    let (aa, plain) = (Level::load("aa").unwrap(), Level::load("plain").unwrap());
    assert_eq!(Level { name: plain.name.clone(), about: plain.about.clone(), ..aa }, plain);
}

#[test]
fn shipped_levels_set_what_their_names_say() {
    for (name, sets) in [
        ("plain", &[][..]),
        ("mtu-1500", &["mtu"]),
        ("mtu-8992", &["mtu"]),
        ("nft-100-rules", &["nftables"]),
        ("reno", &["congestion"]),
        ("gro-off", &["gro"]),
        ("threaded-napi", &["gro", "tso", "threaded_napi"]),
        ("io-uring", &["io_uring"]),
        ("bigtcp", &["big_tcp_bytes"]),
        ("netem", &["qdisc"]),
        ("fq", &["qdisc"]),
        ("bbr-fq", &["congestion", "qdisc"]),
    ] {
        let level = Level::load(name).unwrap();
        assert_eq!((level.settings(), level.plant), (sets.to_vec(), None), "{name}");
    }
    assert_eq!(Level::load("mtu-8992").unwrap().mtu, Some(8_992));
}

#[test]
fn netem_has_the_numbers_of_the_level_and_a_queue_that_suits_them() {
    let netem = |text: &str| match Level::parse(&format!("name = \"x\"\n[qdisc.netem]\n{text}"), "test").unwrap().qdisc
    {
        Some(Qdisc::Netem(netem)) => netem,
        other => panic!("{other:?}"),
    };
    let delayed = netem("delay_us = 10000\njitter_us = 10000\nloss_percent = 0.5");
    assert_eq!((delayed.delay_us, delayed.jitter_us, delayed.loss_percent), (10_000, 10_000, 0.5));
    assert_eq!((delayed.rate_bits_per_s, delayed.queue()), (None, 100_000));
    let slow = netem("rate_bits_per_s = 1000000000");
    assert_eq!((slow.rate_bits_per_s, slow.queue()), (Some(1_000_000_000), 1_000));
    assert_eq!(netem("loss_percent = 50\nqueue_packets = 7").queue(), 7);
}
