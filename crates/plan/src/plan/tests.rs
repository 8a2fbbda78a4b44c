//! Tests of the contents of plans, of the cells that their axes produce, and of refused plans.

use super::*;
use crate::level::{Guests, Variant};

fn plan(text: &str) -> Plan {
    Plan::parse(text, "test").unwrap()
}

#[test]
fn only_a_command_with_a_number_of_clients_has_a_cell_for_each_number() {
    let plan = plan(
        "workloads = [\"one\", \"many\"]\nclients = [1, 4]\n[workload.one]\ncommand = [\"true\"]\n\
         [workload.many]\ncommand = [\"true\", \"{clients}\"]\n",
    );
    let cells = plan.matrix().unwrap().cells;
    let cells: Vec<(String, u32)> = cells.iter().map(|cell| (cell.workload.to_string(), cell.clients)).collect();
    assert_eq!(cells, [("one".to_owned(), 1), ("many".to_owned(), 1), ("many".to_owned(), 4)]);
}

#[test]
fn a_matrix_is_laid_out_anew_without_the_files_it_names() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("x.toml");
    std::fs::write(&file, "name = \"own\"\nmtu = 9000\n").unwrap();
    let text = format!(
        "paths = [\"veth-routed\", \"veth\"]\nlevels = [\"reno\", {:?}, \"reno\"]\n[[include]]\nlevel = \"plain\"\n",
        file.display().to_string()
    );
    let plan = plan(&text);
    let laid = plan.matrix().unwrap();
    assert_eq!(laid.cells.len(), 5);
    std::fs::remove_file(&file).unwrap();
    let again = plan.matrix_with(&laid.levels).unwrap();
    assert_eq!((again.cells, again.levels), (laid.cells, laid.levels.clone()));
    for levels in [&laid.levels[1..], &[laid.levels[1].clone(), laid.levels[0].clone(), laid.levels[2].clone()]] {
        assert_eq!(plan.matrix_with(levels).unwrap_err().exit_status(), 2);
    }
}

#[test]
fn shipped_plans_are_sound() {
    for name in Plan::names() {
        let matrix = Plan::load(name).unwrap().matrix().unwrap();
        assert!(!matrix.cells.is_empty(), "{name}");
    }
}

#[test]
fn the_ablation_switches_every_feature_both_ways_and_has_what_each_variant_varies() {
    let matrix = Plan::load("ablation").unwrap().matrix().unwrap();
    let names: Vec<&str> = matrix.levels.iter().map(|level| level.name.as_str()).collect();
    assert_eq!(names[..2], ["430", "420"]);
    let variants: Vec<Variant<'_>> = names[2..].iter().map(|name| Variant::of(name).unwrap()).collect();
    // The paths of the ablation have no applications, and only applications have direct connections.
    for feature in Guests::FEATURES.into_iter().filter(|feature| *feature != "direct") {
        let is_switched = |with: bool, from: &str| {
            variants.iter().any(|one| (one.feature, one.with) == (feature, with) && one.base.starts_with(from))
        };
        assert!(is_switched(false, "430") && is_switched(true, "420"), "{feature}");
    }
    for one in &variants {
        assert!(names.contains(&one.base), "{one:?}: each is judged against what differs in that feature alone");
    }
    // Each level has all cells, and no two levels have the same settings under different names.
    assert_eq!(matrix.cells.len(), 6 * names.len());
    let sets_the_same = |one: &Level| matrix.levels.iter().filter(|level| level.sets_the_same(one)).count();
    assert!(matrix.levels.iter().all(|level| sets_the_same(level) == 1));
}

#[test]
fn a_level_that_sets_waiting_is_named_in_a_note() {
    let told = |text: &str| {
        let plan = plan(text);
        plan.waits_otherwise(&plan.matrix().unwrap())
    };
    let levels = "paths = [\"hipersockets\"]\nlevels = [\"420\", \"430\"]\n";
    let poll = "`--wait poll` has no effect at some levels, which set themselves how guests wait for data: `block` at 420, `adaptive` at 430";
    assert_eq!(told(&format!("{levels}wait = \"poll\"")).as_deref(), Some(poll));
    let block =
        "`--wait block` has no effect at some levels, which set themselves how guests wait for data: `adaptive` at 430";
    assert_eq!(told(levels).as_deref(), Some(block));
    assert_eq!(told("paths = [\"hipersockets\"]\nlevels = [\"420\", \"reno\"]"), None);
    assert_eq!(told("paths = [\"vctc\", \"veth\"]\nlevels = [\"reno\", \"cubic\"]\nwait = \"poll\""), None);
    let note = Plan::load("ablation").map(|plan| plan.waits_otherwise(&plan.matrix().unwrap())).unwrap().unwrap();
    assert!(note.contains("wait for data: `adaptive` at 430, …, ") && note.ends_with(" levels)"), "{note}");
}

#[test]
fn the_default_plan_is_what_the_documents_say() {
    let plan = Plan::load("default").unwrap();
    let matrix = plan.matrix().unwrap();
    // The first path is the base with which the others are compared.
    assert_eq!(plan.paths, ["veth-routed", "hipersockets-routed"]);
    assert_eq!(plan.workloads, ["rr-200-1000", "crr-64-8k", "strg-20m"]);
    assert_eq!((plan.clients.as_slice(), plan.wait), ([1, 10].as_slice(), Waiting::Block));
    assert_eq!(matrix.cells.len(), 12);
    let mtu = |path: &str| matrix.cells.iter().find(|cell| cell.path == path).and_then(|cell| cell.mtu);
    assert_eq!((mtu("veth-routed"), mtu("hipersockets-routed")), (Some(1_500), Some(57_344)));
    assert_eq!(plan.budget_seconds, Some(240.0));
}

#[test]
fn the_plan_hop_measures_router_overhead() {
    let plan = Plan::load("hop").unwrap();
    assert_eq!(plan.paths, ["veth", "veth-routed", "loopback"]);
    assert_eq!((plan.matrix().unwrap().cells.len(), plan.budget_seconds), (18, Some(240.0)));
}

#[test]
fn a_misspelt_key_is_named_with_its_line() {
    let error = Plan::parse("paths = [\"veth\"]\nworkload = [\"rr-1-1\"]\n", "x.toml").unwrap_err();
    assert_eq!(error.exit_status(), 2);
    assert!(error.message().contains("line 2") && error.message().contains("workload"), "{error}");
}

#[test]
fn excluded_cells_are_absent_and_included_ones_added_once() {
    let plan = plan(
        "paths = [\"veth\", \"unix\"]\nworkloads = [\"rr-1-1\", \"rr-200-1000\"]\nclients = [1, 10]\n\
         [[exclude]]\npath = \"unix\"\nclients = 10\n[[include]]\npath = \"bridge\"\n[[include]]\npath = \"veth\"\n",
    );
    let cells = plan.matrix().unwrap().cells;
    assert_eq!(cells.len(), 2 * 2 * 2 - 2 + 1);
    assert!(!cells.iter().any(|cell| cell.path == "unix" && cell.clients == 10));
}

#[test]
fn values_out_of_range_are_usage_errors_with_the_way_out() {
    for text in [
        "clients = [0]",
        "clients = [10001]",
        "seconds = 0.0",
        "seconds = nan",
        "trials = 0",
        "write = \"0\"",
        "paths = [\"nosuch\"]",
        "mtus = [67]",
        "paths = []",
        "levels = [\"none\"]",
        "rate = 0.0",
        "rate = 5.0\nworkloads = [\"strg-20m\"]",
    ] {
        let error = plan(text).matrix().unwrap_err();
        assert_eq!(error.exit_status(), 2, "{text}: {error}");
        assert!(error.to_string().contains('\n'), "{text} has no way out: {error}");
    }
}

#[test]
fn an_mtu_only_some_paths_take_skips_the_others_with_the_reason() {
    let matrix = plan("paths = [\"veth\", \"loopback\"]\nmtus = [65536]").matrix().unwrap();
    assert_eq!((matrix.cells.len(), matrix.skipped.len()), (1, 1));
    assert!(matrix.skipped[0].1.contains("65535"));
}

/// Writes the file of a level into `directory`. Returns the file's path.
fn level_file(directory: &tempfile::TempDir, name: &str, text: &str) -> String {
    let file = directory.path().join(format!("{name}.toml"));
    std::fs::write(&file, format!("name = \"{name}\"\n{text}")).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn cells_of_a_level_have_its_mtu_and_none_twice() {
    let mtus = |matrix: &Matrix| -> Vec<_> {
        matrix.cells.iter().map(|cell| (cell.level.clone(), cell.mtu.unwrap())).collect()
    };
    let levels = "paths = [\"veth\"]\nlevels = [\"plain\", \"mtu-1500\", \"mtu-8992\"]\n";
    let both = [("plain", 1_500), ("mtu-1500", 1_500), ("mtu-8992", 8_992)].map(|(name, mtu)| (name.into(), mtu));
    let matrix = plan(levels).matrix().unwrap();
    assert_eq!((mtus(&matrix), matrix.skipped.len()), (both.to_vec(), 0));

    let matrix = plan(&format!("{levels}mtus = [1500, 8992]")).matrix().unwrap();
    assert_eq!((matrix.cells.len(), matrix.skipped.len()), (4, 2));
    for (cell, reason) in &matrix.skipped {
        assert!(reason.contains(&cell.level) && reason.contains("MTU"), "{reason}");
    }

    // A value that an `include` leaves out comes from the level, or else from the axes.
    let text = "paths = [\"veth\"]\nmtus = [9000]\n[[include]]\nlevel = \"mtu-8992\"";
    let matrix = plan(text).matrix().unwrap();
    assert_eq!((mtus(&matrix)[1].1, matrix.skipped.len()), (8_992, 0));
}

#[test]
fn a_level_that_a_path_cannot_have_is_skipped_with_the_reason() {
    let text = "paths = [\"veth\", \"unix\", \"smc-loopback\", \"sockmap\", \"local>local\"]\n\
        levels = [\"aa\", \"mtu-8992\", \"nft-100-rules\", \"gro-off\"]\n";
    let matrix = plan(text).matrix().unwrap();
    let of = |path: &str| {
        let skipped = matrix.skipped.iter().filter(|(cell, _)| cell.path == path);
        skipped.map(|(cell, reason)| (cell.level.clone(), reason.clone())).unzip::<_, _, Vec<_>, Vec<_>>()
    };
    assert_eq!(of("veth").0, Vec::<String>::new());
    assert_eq!(of("unix").0, ["mtu-8992", "nft-100-rules"]);
    let (levels, reasons) = of("smc-loopback");
    assert_eq!(levels, ["mtu-8992", "nft-100-rules", "gro-off"]);
    assert!(reasons[2].contains("settings of level gro-off: gro"), "{reasons:?}");
    assert_eq!(of("sockmap").0, ["nft-100-rules"]);
    let (levels, reasons) = of("local>local");
    assert_eq!(levels, ["mtu-8992", "nft-100-rules", "gro-off"]);
    assert!(reasons[2].contains("sets gro"), "{reasons:?}");
}

#[test]
fn planted_costs_of_a_level_are_checked_as_those_of_the_plan() {
    let directory = tempfile::tempdir().unwrap();
    let router = level_file(&directory, "router", "[plant]\nrouter_us = 5.0");
    let late = level_file(&directory, "late", "[plant]\ndelay_us = 200000.0");
    let nothing = level_file(&directory, "nothing", "[plant]");
    let refused = |text: &str| {
        let error = plan(text).matrix().unwrap_err();
        assert_eq!(error.exit_status(), 2, "{text}");
        error.to_string()
    };
    let paths = |path: &str, level: &str| format!("paths = [\"{path}\"]\nlevels = [\"plain\", \"{level}\"]\n");
    assert!(plan(&paths("veth-routed", &router)).matrix().is_ok());
    let error = refused(&paths("veth", &router));
    assert!(error.contains("level router") && error.contains("no kernel path of the plan has a router"), "{error}");
    assert!(plan(&paths("veth", &late)).matrix().is_ok());
    let error = refused(&format!("{}workloads = [\"udp-rr:8/8\"]", paths("veth", &late)));
    assert!(error.contains("level late") && error.contains("lost"), "{error}");

    // Planted costs of a level replace those of the plan, even if the level plants none.
    let planted = "[plant]\nclient_us = 5.0";
    assert!(plan(&format!("{}{planted}", paths("veth", &nothing))).matrix().is_ok());
    let error = refused(&format!("paths = [\"veth\"]\nlevels = [\"{nothing}\"]\n{planted}"));
    assert!(error.contains("each level has its own planted costs"), "{error}");
}

#[test]
fn a_plan_reads_back_as_written() {
    let plan = plan("paths = [\"veth\"]\nrate = 100.0\n[plant]\ndelay_us = 5.0\n[reach]\nport = 7\n");
    assert_eq!(Plan::parse(&plan.to_toml().unwrap(), "again").unwrap(), plan);
}

#[test]
fn axes_that_would_take_for_ever_are_refused_at_once() {
    let long = |number: usize| vec!["veth".to_owned(); number];
    for (plan, words) in [
        (Plan { paths: long(10_001), ..Plan::default() }, "the list `paths` in the plan has too many values: 10001"),
        (Plan { levels: vec!["plain".into(); 1_000_000], paths: Vec::new(), ..Plan::default() }, "`levels`"),
        (Plan { exclude: vec![Pick::default(); 1_001], ..Plan::default() }, "`exclude`"),
        (Plan { paths: long(1_000), clients: vec![1; 1_000], ..Plan::default() }, "1000000 combinations"),
    ] {
        for error in [plan.matrix().unwrap_err(), plan.matrix_with(&[Level::plain()]).unwrap_err()] {
            assert!(error.exit_status() == 2 && error.message().contains(words), "{error}");
        }
    }
    assert_eq!(Plan { paths: long(10_000), ..Plan::default() }.matrix().unwrap().cells.len(), 1);
}

#[test]
fn each_size_of_frames_has_an_mtu_of_8_kb_less() {
    let matrix = Plan::load("frames").unwrap().matrix().unwrap();
    for (level, mtu) in [("frame-16k", 8_192), ("frame-24k", 16_384), ("frame-40k", 32_768), ("frame-64k", 57_344)] {
        let own: Vec<_> = matrix.cells.iter().filter(|cell| cell.level == level).collect();
        assert!(own.len() == 6 && own.iter().all(|cell| cell.mtu == Some(mtu)), "{level}: {own:?}");
    }
    let text =
        |path: &str, mtu: &str| format!("paths = [\"{path}\", \"vctc\"]\nlevels = [\"frame-16k\", \"430\"]\n{mtu}");
    let skipped = |path: &str, mtu: &str| plan(&text(path, mtu)).matrix().unwrap().skipped;
    assert_eq!(skipped("hipersockets", "mtus = [8192]").len(), 1, "the virtual CTC has no frames");
    let refused = skipped("guestlan-hipers", "mtus = [8193]");
    assert!(refused[0].1.contains("frames of 16K, which carry an MTU of at most 8192 bytes"), "{refused:?}");
    let spec = crate::spec::GuestSpec {
        path: "hipersockets".parse().unwrap(),
        mtu: 8_192,
        ipv6: false,
        wait: Waiting::Block,
        guests: Level::load("frame-16k").unwrap().guests.unwrap(),
        link: None,
        sysctl: BTreeMap::new(),
        applications: 1,
    };
    assert!(spec.topology().contains("type = \"hipersockets\"\nframe = \"16K\""), "{}", spec.topology());
}

#[test]
fn a_finding_can_be_about_some_paths_and_mtus() {
    let text = "paths = [\"vctc\", \"hipersockets\"]\nmtus = [1500, 9000]\nlevels = [\"420\", \"430\"]\n[[finding]]\nid = \"x\"\nsays = \"X.\"\n\
        figure = \"rate\"\nlevel = \"430\"\nbase = \"420\"\nabove = 1.0\npaths = [\"hipersockets\"]\nmtus = [9000]";
    let plan = plan(text);
    let matrix = plan.matrix().unwrap();
    let about: Vec<_> = matrix.cells.iter().filter(|cell| plan.finding[0].is_about(cell)).collect();
    assert_eq!((matrix.cells.len(), about.len()), (8, 2));
    assert!(about.iter().all(|cell| cell.path == "hipersockets" && cell.mtu == Some(9_000)));
}

#[test]
fn every_cell_of_the_plans_about_single_settings_can_be_measured_and_belongs_to_a_finding() {
    for name in [
        "backlog",
        "buffers",
        "buffers-osa",
        "checksums",
        "firewall",
        "mtu-by-size",
        "packing",
        "priority-queues",
        "windows",
    ] {
        let plan = Plan::load(name).unwrap();
        let matrix = plan.matrix().unwrap();
        assert!(matrix.skipped.is_empty(), "{name}: {:?}", matrix.skipped);
        assert!(
            matrix.cells.len() <= 48,
            "{name}: {} cells are too many for six rounds in the time",
            matrix.cells.len()
        );
        let pairs = |finding: &Finding| {
            let at =
                |level: &str| matrix.cells.iter().filter(|cell| cell.level == level && finding.is_about(cell)).count();
            (at(&finding.level), at(&finding.base))
        };
        for finding in &plan.finding {
            let (level, base) = pairs(finding);
            assert!(level > 0 && base >= level, "{name}, {}: {level} cells against {base}", finding.id);
        }
    }
}

#[test]
fn each_cell_of_a_plan_with_findings_belongs_to_a_finding() {
    let plans = Plan::names().into_iter().map(|name| Plan::load(name).unwrap());
    let mut others = Vec::new();
    for plan in plans.filter(|plan| !plan.finding.is_empty()) {
        let belongs = |cell: &Cell, finding: &Finding| {
            finding.is_about(cell) && [&finding.level, &finding.base].contains(&&cell.level)
        };
        let cells = plan.matrix().unwrap().cells;
        let own = cells.iter().filter(|cell| !plan.finding.iter().any(|finding| belongs(cell, finding)));
        others.extend(own.map(|cell| format!("{}: {cell}", plan.name)));
    }
    assert!(others.is_empty(), "no finding is about these cells:\n{}", others.join("\n"));
}

#[test]
fn a_finding_that_no_cell_can_decide_is_refused() {
    let text = |finding: &str| {
        format!(
            "paths = [\"vctc\"]\nlevels = [\"420\", \"430\"]\n[[finding]]\nid = \"x\"\nsays = \"X.\"\nfigure = \"rate\"\n{finding}"
        )
    };
    plan(&text("level = \"430\"\nbase = \"420\"\nabove = 1.0")).matrix().unwrap();
    for (finding, part) in [
        ("level = \"430\"\nbase = \"420\"", "needs the bound"),
        ("level = \"430\"\nbase = \"420\"\nabove = -1.0", "a number above 0"),
        ("level = \"430\"\nbase = \"420\"\nabove = 2.0\nbelow = 1.0", "no ratio is above 2 and below 1"),
        ("level = \"430\"\nbase = \"430\"\nabove = 2.0", "compares a level with itself"),
        ("level = \"430\"\nbase = \"reno\"\nabove = 2.0", "no cell of the finding at level reno"),
        ("level = \"430\"\nbase = \"420\"\nabove = 2.0\nclients = [7]", "no cell of the finding at level 430"),
        ("level = \"430\"\nbase = \"420\"\nabove = 2.0\nworkloads = [\"x\"]", "unknown workload"),
        ("level = \"430\"\nbase = \"420\"\nabove = 2.0\npaths = [\"x\"]", "`x`"),
        (
            "level = \"430\"\nbase = \"420\"\nabove = 2.0\npaths = [\"hipersockets\"]",
            "no cell of the finding at level 430",
        ),
        ("level = \"430\"\nbase = \"420\"\nabove = 2.0\nmtus = [1500]", "no cell of the finding at level 430"),
    ] {
        let error = plan(&text(finding)).matrix().unwrap_err().to_string();
        assert!(error.contains(part), "{finding}: {error}");
    }
    // Each level has a cell, but not for the same number of pairs.
    let apart = "paths = []\nworkloads = []\nclients = []\nlevels = []\ninclude = [\n\
        { path = \"vctc\", workload = \"rr-1-1\", mtu = 1500, clients = 1, level = \"420\" },\n\
        { path = \"vctc\", workload = \"rr-1-1\", mtu = 1500, clients = 2, level = \"430\" },\n]\n\
        [[finding]]\nid = \"x\"\nsays = \"X.\"\nfigure = \"rate\"\nlevel = \"430\"\nbase = \"420\"\nabove = 1.0";
    let error = plan(apart).matrix().unwrap_err().to_string();
    assert!(error.contains("no cell of the finding has a partner: levels 430 and 420 differ"), "{error}");
    let long = text("level = \"430\"\nbase = \"420\"\nabove = 1.0").replace("X.", &"x".repeat(1_001));
    assert!(plan(&long).matrix().unwrap_err().to_string().contains("is too long"));
    let twice = "level = \"430\"\nbase = \"420\"\nabove = 1.0";
    let twice = format!("{}\n[[finding]]\nid = \"x\"\nsays = \"Y.\"\nfigure = \"cpu\"\n{twice}", text(twice));
    assert!(plan(&twice).matrix().unwrap_err().to_string().contains("two findings with the name x"));
}
