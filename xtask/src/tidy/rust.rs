//! Rules for the code of a Rust source: where unsafe code is allowed, how files are opened, and which tests exist.
//!
//! Comments and literals are blanked out before the rules run. The rules miss code that a macro assembles; the compiler's own
//! `unsafe_code` lint finds it.

use super::Problem;
use super::code::{code_only, without_tests};
use super::text::contains_word;
use super::tree::File;

/// Finds unsafe code outside the files where it is allowed: `sys.rs` and `sys/*.rs` of a crate, the ring's memory mapping,
/// and the preload library's functions of C.
/// Also finds code that opens files by path although an attacker may control the directory.
pub(crate) fn check(file: &File) -> Vec<Problem> {
    if !file.path.ends_with(".rs") {
        return Vec::new();
    }
    let code = code_only(&file.text);
    let mut problems = Vec::new();
    for (number, line) in (1..).zip(code.lines()) {
        if !may_be_unsafe(&file.path) && contains_word(line, "unsafe") {
            problems.push(Problem::at(&file.path, number, "unsafe code has no place in this file"));
        }
    }
    if handles_hostile_files(&file.path) {
        for (number, line) in (1..).zip(without_tests(&code).lines()) {
            if BY_PATH.iter().any(|word| contains_word(line, word)) {
                let what = "an attacker may have put this file there: open it by `file.rs` or `directory.rs`";
                problems.push(Problem::at(&file.path, number, what));
            }
        }
    }
    problems
}

/// Functions that open, make or remove a file by its path and follow symbolic links.
const BY_PATH: [&str; 14] = [
    "fs::read",
    "fs::read_to_string",
    "fs::read_dir",
    "fs::write",
    "fs::copy",
    "fs::rename",
    "fs::remove_file",
    "fs::remove_dir_all",
    "fs::create_dir",
    "fs::create_dir_all",
    "fs::metadata",
    "OpenOptions",
    "File::open",
    "File::create",
];

/// Whether the code at `path` reads and writes run directories, plans, levels and outputs, which an attacker may have prepared.
fn handles_hostile_files(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    match parts[..] {
        ["crates", _, "src", .., "tests.rs"] | ["crates", _, "src", .., "tests", _] => false,
        ["crates", "plan" | "results" | "report", "src", ..] => true,
        ["crates", "measure", "src", "config.rs" | "run.rs"] => true,
        ["crates", "siga", "src", name] => name != "net.rs",
        _ => false,
    }
}

/// Returns the names of the functions that are marked as tests, or listed in a table `needs_vm!`.
pub(crate) fn tests(text: &str) -> Vec<String> {
    let code = code_only(text);
    let mut names = Vec::new();
    let (mut marked, mut in_table) = (false, false);
    for line in code.lines().map(str::trim) {
        if line.ends_with("needs_vm! {") {
            in_table = true;
            continue;
        }
        in_table &= line != "}";
        marked |= line.starts_with("#[test]");
        let function = line.split_once("fn ").map(|(_, rest)| rest.split(['(', '<']).next().unwrap_or_default());
        let listed = line.split_once(':').map(|(name, _)| name).filter(|_| in_table);
        let name = listed.or(function.filter(|_| marked));
        names.extend(name.map(|name| name.trim().to_owned()));
        marked &= function.is_none();
    }
    names
}

fn may_be_unsafe(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    matches!(
        parts[..],
        ["crates", _, "src", "sys.rs"]
            | ["crates", _, "src", "sys", _]
            | ["crates", "ring", "src", "map.rs"]
            | ["crates", "preload", "src", "abi.rs"]
            | ["crates", "preload", "src", "abi", _]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        check(&File { path: path.to_owned(), text: text.to_owned() }).iter().map(|f| f.place.clone()).collect()
    }

    #[test]
    fn every_form_of_unsafe_code_is_found() {
        for code in [
            "let a = unsafe { b() };",
            "unsafe fn a() {}",
            "unsafe impl Send for A {}",
            "unsafe extern \"C\" { fn a(); }",
            "#[unsafe(no_mangle)]",
            "let a = 'x'; unsafe { b() }",
            "fn a<'a>(b: &'a str) { unsafe { c(b) } }",
            "let a = r\"\\\"; unsafe { b() }",
            "let a = \"\\\\\"; unsafe { b() }",
            "/* a /* b */ c */ unsafe { b() }",
        ] {
            assert_eq!(
                found("crates/measure/src/a.rs", &format!("//! A.\n{code}\n")),
                ["crates/measure/src/a.rs:2"],
                "{code}"
            );
        }
    }

    #[test]
    fn the_word_outside_code_is_not_found() {
        for code in [
            "#![forbid(unsafe_code)]",
            "// unsafe { b() }",
            "/* unsafe\n/* { */ unsafe\n*/",
            "let a = \"unsafe { \\\" unsafe { \";",
            "let a = br#\"\" unsafe { \"#;",
            "let a = '\\''; let b = \"unsafe { \";",
            "let a = '\"'; let b = \"unsafe { \";",
        ] {
            assert_eq!(found("crates/measure/src/a.rs", code), [""; 0], "{code}");
        }
    }

    #[test]
    fn only_the_named_files_may_hold_it() {
        let code = "//! A.\nunsafe fn a() {}\n";
        for path in
            ["crates/measure/src/sys.rs", "crates/measure/src/sys/perf.rs", "crates/ring/src/map.rs", "notes.md"]
        {
            assert_eq!(found(path, code), [""; 0], "{path}");
        }
        for path in [
            "crates/measure/src/map.rs",
            "crates/measure/src/sys/a/b.rs",
            "crates/measure/tests/sys.rs",
            "xtask/src/sys.rs",
        ] {
            assert_eq!(found(path, code).len(), 1, "{path}");
        }
    }

    #[test]
    fn files_of_others_are_not_opened_by_their_path() {
        let code = "//! A.\nfn a() { let b = std::fs::read_to_string(c); }\nuse std::fs::File;\n";
        for path in ["crates/results/src/store.rs", "crates/report/src/output.rs", "crates/siga/src/report.rs"] {
            assert_eq!(found(path, code), [format!("{path}:2")]);
            assert_eq!(found(path, &format!("//! A.\n#[cfg(test)]\nmod tests {{\n{code}}}\n")), [""; 0], "{path}");
        }
        for path in ["crates/measure/src/cpu/host.rs", "crates/measure/src/directory.rs", "crates/siga/tests/store.rs"]
        {
            assert_eq!(found(path, code), [""; 0], "{path}");
        }
    }

    #[test]
    fn only_functions_marked_as_tests_are_listed() {
        let text = "fn helper() {}\n#[test]\n#[ignore = \"why\"]\nfn one() {\n fn inner() {}\n}\n\
            proptest! {\n    #[test]\n    fn two(a in 0..3) {}\n}\n// #[test]\nfn three() {}\n\
            #[test]\npub(crate) fn four<T>() {}\n\
            vm::needs_vm! {\n    five: \"bonding\",\n    six: \"a, b\",\n}\nstruct A {\n    b: u8,\n}\n";
        assert_eq!(tests(text), ["one", "two", "four", "five", "six"]);
    }
}
