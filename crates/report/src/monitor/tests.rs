//! Samples with hostile names and missing figures.

use super::*;
use siga_results::monitor::{CpuReading, HostReading, NetReading, ProcessReading, Reading, Role, State, Who};

fn reading(second: u64) -> Reading {
    let ns = second * 1_000_000_000;
    let host = HostReading {
        cpus: 2,
        virtual_ns: ns / 2,
        cp_ns: ns / 4,
        idle_ns: ns + ns / 4,
        steal_ns: 0,
        pressure_ns: [Some(ns / 10), None, Some(0)],
    };
    let who = |name: &str, role, guest: Option<&str>, pid, state| Who {
        name: name.into(),
        role,
        guest: guest.map(Into::into),
        pid,
        state,
        restarts: 1,
    };
    let cpu = CpuReading { run_ns: ns / 4, virtual_ns: ns / 5, wait_ns: Some(ns / 100) };
    let net = NetReading {
        packets_sent: 10 * second,
        packets_received: 20 * second,
        bytes_sent: 5_000 * second,
        bytes_received: 7_000 * second,
        dropped: second,
        connections: 3,
        buffers: 64,
        buffers_used: 16,
    };
    let process = |who, cpu, net| ProcessReading { who, cpu, net };
    Reading {
        at: format!("2026-11-27T20:00:0{second}Z"),
        at_ns: ns,
        host,
        processes: vec![
            process(who("tcpip1", Role::Guest, None, Some(7), State::Running), Some(cpu), Some(net)),
            process(
                who("a\"b\\\n\u{1b}[2J", Role::Application, Some("tcpip1"), Some(8), State::Running),
                Some(CpuReading { wait_ns: None, ..cpu }),
                None,
            ),
            process(who("tcpip2", Role::Router, None, None, State::Down), None, None),
        ],
        monitor: CpuReading { run_ns: ns / 1_000, virtual_ns: ns / 2_000, wait_ns: None },
    }
}

fn sample(number: u64) -> Sample {
    Sample::between(&reading(number), &reading(number + 1), number)
}

#[test]
fn a_table_of_the_monitor_fits_the_screen_and_shows_what_is_missing() {
    let wide = table("network n", &sample(1), 200);
    let lines: Vec<&str> = wide.lines().collect();
    assert!(
        lines[1].starts_with("host: 2 CPUs, 25.0% virtual, 12.5% CP, 0.0% steal; pressure: CPU 10.0%, I/O -"),
        "{wide}"
    );
    assert!(lines[1].ends_with("monitor: 0.10% of a CPU"), "{wide}");
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(
        words(lines[3]),
        ["tcpip1", "guest", "7", "25.0", "200.0", "50.0", "10.0", "20", "10", "7", "5", "25", "3", "1"],
        "{wide}"
    );
    assert!(lines[5].starts_with("tcpip2") && lines[5].contains("router, down"), "{wide}");
    assert!(!wide.contains('\u{1b}') && lines.len() == 7, "{wide:?}");
    let narrow = table("network n", &sample(1), 60);
    assert!(narrow.lines().skip(2).all(|line| line.chars().count() <= 60), "{narrow}");
    assert!(narrow.contains("CPU %") && narrow.contains("drops") && !narrow.contains("pid"), "{narrow}");
}

#[test]
fn the_csv_of_the_monitor_has_its_heads_once_and_a_record_for_each_process() {
    let (first, second) =
        (csv_records("network n", &sample(1)).unwrap(), csv_records("network n", &sample(2)).unwrap());
    assert_eq!((first.lines().count(), second.lines().count()), (6, 5));
    assert_eq!(first.lines().next(), Some(COLUMNS.join(",").as_str()));
    assert!(second.contains(",network n,tcpip1,guest,,7,running,1,25.0,200.0,50.0,10.0,"), "{second}");
}

#[test]
fn a_line_of_json_of_the_monitor_is_one_line_and_has_all_figures() {
    let line = json_line("network n", &sample(1)).unwrap();
    assert_eq!(line.lines().count(), 1);
    let value: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&value["format"], &value["number"]), (&json!("siga/monitor/1"), &json!(1)));
    let guest = &value["processes"][0];
    assert_eq!((&guest["net"]["bytes_sent"], &guest["cpu"]["virtual_ms"]), (&json!(5_000), &json!(200.0)));
    assert_eq!(value["processes"][2]["cpu"], Value::Null);
}

#[test]
fn open_metrics_escape_labels_and_end_with_eof() {
    let text = metrics("network n", &reading(2));
    assert!(text.ends_with("# EOF\n"), "{text}");
    let line = "siga_process_cpu_seconds_total{target=\"network n\",name=\"tcpip1\",role=\"guest\",guest=\"\",pid=\"7\",mode=\"cp\"} 0.1\n";
    assert!(text.contains(line), "{text}");
    assert!(text.contains("name=\"a\\\"b\\\\"), "{text}");
    assert!(!text.contains('\u{1b}'), "{text:?}");
    let names = text.lines().filter(|line| line.starts_with("# TYPE")).count();
    assert_eq!(text.lines().filter(|line| line.starts_with("# HELP")).count(), names);
}

#[test]
fn the_reports_of_z_vm_have_its_precision_and_all_digits() {
    let line = summary_line(&sample(1));
    let fields: Vec<&str> = line.split_whitespace().skip(1).collect();
    assert_eq!(fields, ["37.5", "25.0", "12.5", "37.500000", "25.000000", "12.500000"]);
    let mut users = Users::default();
    (1..=8).for_each(|number| users.add(&sample(number)));
    let text = users.text();
    let of_guest = text.lines().find(|line| line.starts_with("tcpip1 ")).unwrap();
    let fields: Vec<&str> = of_guest.split_whitespace().skip(1).collect();
    assert_eq!(fields, ["2", "2", "2.000000", "1.600000"]);
    assert!(text.contains("CPU seconds in 8.000 s"), "{text}");
}
