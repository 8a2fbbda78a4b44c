//! The page of a report: one HTML file that contains its style sheet, script and data, and needs no network.
//!
//! Every text from a run may be hostile and is escaped: text and attributes by `maud`, data for the script by [`data`].
//! Invisible characters, and characters that change the writing direction, are replaced in the whole page. As a second defence,
//! the content security policy allows no script except the one of this crate.

use crate::output;
use maud::{Markup, PreEscaped, html};
use serde_json::json;
use siga_model::text;
use std::ops::Range;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");
/// SHA-256 of the script in base64. The content security policy allows only the script with this hash.
const SCRIPT_HASH: &str = "xBg8p+OsT65NXZcjq6N6kLSt+xcktwLrGMcV0vhy0rE=";

/// A part of the page with a heading.
#[derive(Debug)]
pub(super) struct Section {
    /// The anchor of the section in links.
    pub(super) id: &'static str,
    /// The heading of the section.
    pub(super) title: &'static str,
    /// The content of the section.
    pub(super) body: Markup,
    /// Whether the section is folded when the page opens. Printing unfolds it.
    pub(super) is_folded: bool,
}

impl Section {
    /// Returns a section whose content is visible when the page opens.
    pub(super) fn open(id: &'static str, title: &'static str, body: Markup) -> Self {
        Self { id, title, body, is_folded: false }
    }

    /// Returns a section that the reader unfolds.
    pub(super) fn folded(id: &'static str, title: &'static str, body: Markup) -> Self {
        Self { id, title, body, is_folded: true }
    }
}

/// The top of the page.
#[derive(Debug)]
pub(super) struct Top {
    /// The title of the page: what kind of report it is, and of which runs.
    pub(super) title: String,
    /// What stands above the heading: the question, or the title.
    pub(super) question: String,
    /// The heading: the answer in a sentence.
    pub(super) answer: String,
    /// What stands below the heading.
    pub(super) lead: Markup,
}

/// A file that the page contains. The reader of the page can save it.
#[derive(Debug)]
pub(super) struct Download {
    /// The name of the file when it is saved.
    pub(super) name: String,
    /// A description of the content.
    pub(super) about: String,
    /// The media type of the content.
    pub(super) media: &'static str,
    /// The content of the file.
    pub(super) text: String,
}

/// A chart and a table of its values. The drawing has one mark (a bar, point or link that shows its exact values) for each row of
/// the table.
#[derive(Debug)]
pub(super) struct Figure {
    /// The title: what the chart shows.
    pub(super) title: String,
    /// A description of how to read the chart.
    pub(super) about: String,
    /// The drawing as SVG, with its legend.
    pub(super) drawing: Markup,
    /// The heads of the table's columns.
    pub(super) head: Vec<String>,
    /// The indices of the columns that contain numbers.
    pub(super) numbers: Range<usize>,
    /// The rows of the table, in the order of the marks.
    pub(super) rows: Vec<Vec<String>>,
    /// A note about rows that were left out because the chart has no space for them; `None` if it shows all rows.
    pub(super) left_out: Option<String>,
}

/// Returns the complete page. The first `first` sections stand above the list of contents.
pub(super) fn page(top: &Top, sections: &[Section], first: usize, downloads: &[Download]) -> String {
    let policy = format!(
        "default-src 'none'; script-src 'sha256-{SCRIPT_HASH}'; style-src 'unsafe-inline'; img-src data:; \
         base-uri 'none'; form-action 'none'"
    );
    let (above, below) = sections.split_at(first.min(sections.len()));
    let markup = html! {
        (PreEscaped(output::REPORT))
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="generator" content={ "siga " (env!("CARGO_PKG_VERSION")) };
                link rel="icon" href="data:,";
                title { (top.title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                (patterns())
                header { p class="title" { (top.question) } h1 { (top.answer) } (top.lead) }
                main {
                    @for section in above { (section_of(section)) }
                    nav aria-label="Contents" {
                        @for section in below { a href={ "#" (section.id) } { (section.title) } }
                        @if !downloads.is_empty() { a href="#data" { "Raw data" } }
                    }
                    @for section in below { (section_of(section)) }
                    @if !downloads.is_empty() { (section_of(&Section::folded("data", "Raw data", downloads_of(downloads)))) }
                }
                div id="tip" aria-hidden="true" hidden {}
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    text::lines(&markup.into_string()) + "\n"
}

fn section_of(section: &Section) -> Markup {
    html! {
        @if section.is_folded {
            // The anchor is inside of the fold, so that a link to it unfolds the section.
            details class="section print" {
                summary { h2 { (section.title) } }
                section id=(section.id) { (section.body) }
            }
        } @else {
            section id=(section.id) { h2 { (section.title) } (section.body) }
        }
    }
}

/// Returns a chart with its table as HTML.
pub(super) fn figure(figure: &Figure) -> Markup {
    html! {
        figure class="chart" data-rows=(figure.rows.len()) {
            figcaption { h3 { (figure.title) } p { (figure.about) } }
            div class="drawing" { (figure.drawing) }
            @if let Some(left_out) = &figure.left_out { p class="note" { (left_out) } }
            details {
                summary { "Figures of this chart as a table" }
                (table(&figure.head, &figure.rows, figure.numbers.clone()))
            }
        }
    }
}

/// Returns a table that can be scrolled sideways on a narrow page. `numbers` are the indices of the columns that contain numbers.
pub(super) fn table(head: &[String], rows: &[Vec<String>], numbers: Range<usize>) -> Markup {
    let class = |column: usize| numbers.contains(&column).then_some("number");
    let cell_class = |column: usize, cell: &str| class(column).unwrap_or(text_class(cell));
    html! {
        div class="scroll" tabindex="0" role="region" aria-label="Table" {
            table {
                thead { tr { @for (column, name) in head.iter().enumerate() { th scope="col" class=[class(column)] { (name) } } } }
                tbody {
                    @for row in rows {
                        tr { @for (column, cell) in row.iter().enumerate() {
                            @if column == 0 { th scope="row" class=(text_class(cell)) { (cell) } } @else { td class=(cell_class(column, cell)) { (cell) } }
                        } }
                    }
                }
            }
        }
    }
}

/// Returns the CSS class of a text in a table: a short text stays on one line, and a column with long texts has a minimum width.
pub(super) fn text_class(text: &str) -> &'static str {
    const LETTERS_MAX: usize = 32;
    if text.chars().count() <= LETTERS_MAX { "name" } else { "wrap" }
}

/// Returns text whose columns are aligned by spaces, in a font with fixed width.
pub(super) fn columns(text: &str) -> Markup {
    // On paper, the style sheet makes the letters so small that `letters` of them fit on a line. Lines without columns
    // (sentences) are wrapped, so their length does not matter.
    let lines = text.lines().filter(|line| line.contains("   "));
    let letters = lines.map(|line| line.chars().count()).max().unwrap_or(0).max(80);
    html! {
        div class="scroll" tabindex="0" role="region" aria-label="Table" {
            pre style=(format!("--letters:{letters}")) { (text) }
        }
    }
}

/// Converts the heads of a table's columns to owned strings.
pub(super) fn heads(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn downloads_of(downloads: &[Download]) -> Markup {
    html! {
        ul class="downloads" {
            @for (number, download) in downloads.iter().enumerate() {
                li {
                    button type="button" data-from={ "raw-" (number) } { "Save " (download.name) }
                    " " (download.about) " (" (size(download.text.len())) ")"
                }
            }
        }
        noscript { p { "Saving needs JavaScript; the tables above contain the same figures." } }
        @for (number, download) in downloads.iter().enumerate() {
            script type="application/json" id={ "raw-" (number) } { (PreEscaped(data(download))) }
        }
    }
}

/// Returns a file as data for the script: JSON in which no text can end the script element or begin another element.
fn data(download: &Download) -> String {
    let name: String = download
        .name
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() || ".-_".contains(letter) { letter } else { '_' })
        .collect();
    let json = json!({ "name": name.trim_start_matches('.'), "media": download.media, "text": download.text });
    let mut safe = String::new();
    for letter in json.to_string().chars() {
        if "<>&".contains(letter) || text::is_unseen(letter) {
            // These characters are not part of JSON's syntax. They occur only in strings, where an escape can replace them.
            let mut units = [0; 2];
            for unit in letter.encode_utf16(&mut units) {
                safe.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            safe.push(letter);
        }
    }
    safe
}

fn size(bytes: usize) -> String {
    match bytes {
        0..1_000 => format!("{bytes} bytes"),
        1_000..1_000_000 => format!("{} kB", bytes.div_ceil(1_000)),
        _ => format!("{} MB", bytes.div_ceil(1_000_000)),
    }
}

/// Returns the SVG patterns that distinguish the parts of a bar without colour.
fn patterns() -> Markup {
    let pattern = |name: &str, size: u32, drawing: Markup| {
        html! {
            pattern id={ "p-" (name) } width=(size) height=(size) patternUnits="userSpaceOnUse" {
                rect class={ "ground-" (name) } width=(size) height=(size) {}
                g class="ink" { (drawing) }
            }
        }
    };
    html! {
        svg class="patterns" width="0" height="0" aria-hidden="true" {
            defs {
                (pattern("router", 7, html! { path d="M-2,2L2,-2M0,7L7,0M5,9L9,5" {} }))
                (pattern("server", 6, html! { circle cx="3" cy="3" r="0.9" {} }))
                (pattern("other", 5, html! { path d="M0,2.5H5" {} }))
                (pattern("worse", 7, html! { path d="M-2,5L2,9M0,0L7,7M5,-2L9,2" {} }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use std::io::Write;
    use std::process::{Command, Stdio};

    #[test]
    fn the_policy_lets_our_script_run() {
        let started = Command::new("sha256sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let Ok(mut program) = started else {
            eprintln!("skipped, because there is no sha256sum");
            return;
        };
        program.stdin.take().unwrap().write_all(SCRIPT.as_bytes()).unwrap();
        let printed = String::from_utf8(program.wait_with_output().unwrap().stdout).unwrap();
        let digits = printed.split_whitespace().next().unwrap();
        let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
        let hash: Vec<u8> = (0..digits.len()).step_by(2).map(byte).collect();
        assert_eq!(SCRIPT_HASH, STANDARD.encode(hash), "SCRIPT_HASH is not that of script.js");
    }

    #[test]
    fn a_size_has_a_unit_of_its_magnitude() {
        assert_eq!([size(0), size(999), size(1_001), size(5_000_001)], ["0 bytes", "999 bytes", "2 kB", "6 MB"]);
    }
}
