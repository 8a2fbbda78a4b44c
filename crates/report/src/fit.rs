//! Tables that fit a screen: a table drops its least important columns until its rows fit, and never breaks a row. Colours are marks in
//! the text until [`finish`] replaces them.

use siga_model::text::is_unseen;
use siga_results::judge::Verdict;
use std::ops::Range;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Where a text is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Screen {
    /// Number of characters in a line. Tables fit into it.
    pub width: usize,
    /// Whether sentences that are longer than a line are wrapped. They are on terminals, but not in files and pipes.
    pub wraps: bool,
    /// Whether verdicts are coloured.
    pub colour: bool,
}

impl Default for Screen {
    /// A file or a pipe.
    fn default() -> Self {
        Self { width: 120, wraps: false, colour: false }
    }
}

/// What the colour of a field says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Tone {
    /// No colour.
    #[default]
    Plain,
    /// A figure became better.
    Better,
    /// A figure became worse.
    Worse,
}

impl Tone {
    pub(super) fn of(verdict: &Verdict) -> Self {
        match verdict {
            Verdict::Better => Self::Better,
            Verdict::Worse => Self::Worse,
            Verdict::NotComparable { .. } | Verdict::Equivalent | Verdict::Inconclusive { .. } => Self::Plain,
        }
    }
}

/// The marks around coloured text. Names cannot contain them, because they are invisible characters.
const BETTER: char = '\u{fff9}';
const WORSE: char = '\u{fffa}';
const END: char = '\u{fffb}';

/// A field of a table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Field {
    /// The text, and a shorter one for a narrow screen.
    text: String,
    short: Option<String>,
    tone: Tone,
}

impl From<String> for Field {
    fn from(text: String) -> Self {
        Self { text, ..Self::default() }
    }
}

impl From<&str> for Field {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl Field {
    /// Returns the field with a colour.
    pub(super) fn toned(mut self, tone: Tone) -> Self {
        self.tone = tone;
        self
    }

    /// Returns the field with a shorter text for a narrow screen.
    pub(super) fn or(mut self, short: String) -> Self {
        self.short = Some(short);
        self
    }

    /// Returns the text.
    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    fn text(&self, short: bool) -> &str {
        self.short.as_deref().filter(|_| short).unwrap_or(&self.text)
    }

    fn padded(&self, short: bool, width: usize, right: bool) -> String {
        let text = cut(self.text(short), width);
        let gap = " ".repeat(width - text.width());
        let text = match self.tone {
            Tone::Plain => text,
            Tone::Better => format!("{BETTER}{text}{END}"),
            Tone::Worse => format!("{WORSE}{text}{END}"),
        };
        if right { gap + &text } else { text + &gap }
    }
}

/// A column of a table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column<'a> {
    /// The head.
    pub(super) head: &'a str,
    /// Whether its fields are aligned right.
    pub(super) right: bool,
    /// When the column is dropped: those with the lowest number first, all of a number together; 0 is never dropped.
    pub(super) drop: u8,
    /// When the column shows its short texts, in the same order; 0 is never.
    pub(super) shorten: u8,
}

/// A line of a table.
#[derive(Debug, Clone)]
pub(super) enum Line {
    /// A heading over the rows below it.
    Heading(String),
    /// A row with a field for each column.
    Row(Vec<Field>),
}

/// Number of characters between two columns.
const GAP: usize = 2;
/// A name is never cut to fewer characters.
const NAME_LEAST: usize = 8;

/// Returns a table with lines of at most `width` characters. Its first column has names; they are cut only if no column is left to drop.
pub(super) fn table(columns: &[Column<'_>], lines: &[Line], width: usize) -> String {
    let rows = || lines.iter().filter_map(|line| if let Line::Row(fields) = line { Some(fields) } else { None });
    let steps = columns.iter().flat_map(|column| [column.drop, column.shorten]).max().unwrap_or(0);
    let (mut shown, mut widths) = (Vec::new(), Vec::new());
    for step in 0..=steps {
        let is_short = |column: &Column<'_>| column.shorten > 0 && column.shorten <= step;
        shown = (0..columns.len()).filter(|at| columns[*at].drop == 0 || columns[*at].drop > step).collect();
        widths = shown
            .iter()
            .map(|&at| {
                let column = &columns[at];
                // A column without any text takes no room.
                let own = rows().map(|fields| fields[at].text(is_short(column)).width()).max().unwrap_or(0);
                (if own > 0 { own.max(column.head.width()) } else { 0 }, is_short(column))
            })
            .collect();
        let kept: Vec<bool> = widths.iter().map(|(width, _)| *width > 0).collect();
        let mut kept_of = kept.iter();
        shown.retain(|_| kept_of.next() == Some(&true));
        widths.retain(|(width, _)| *width > 0);
        if widths.iter().map(|(width, _)| width + GAP).sum::<usize>() <= width + GAP {
            break;
        }
    }
    let all: usize = widths.iter().map(|(width, _)| width + GAP).sum();
    if let Some((first, _)) = widths.first_mut() {
        *first = first.saturating_sub(all.saturating_sub(width + GAP)).max(NAME_LEAST.min(*first));
    }
    let line = |fields: &[Field]| {
        let texts = shown.iter().zip(&widths);
        let texts = texts.map(|(&at, &(width, short))| fields[at].padded(short, width, columns[at].right));
        texts.collect::<Vec<_>>().join(&" ".repeat(GAP)).trim_end().to_owned() + "\n"
    };
    let heads: Vec<Field> = columns.iter().map(|column| column.head.into()).collect();
    let mut out = line(&heads);
    for entry in lines {
        match entry {
            Line::Heading(text) => out = out + text + "\n",
            Line::Row(fields) => out += &line(fields),
        }
    }
    out
}

/// Returns a table without colours and headings. `drop` says when each column is dropped, and `numbers` which columns are aligned right.
pub(super) fn plain<const N: usize>(
    heads: [&str; N],
    drop: [u8; N],
    numbers: Range<usize>,
    rows: Vec<[String; N]>,
    width: usize,
) -> String {
    let column = |(at, head)| Column { head, right: numbers.contains(&at), drop: drop[at], shorten: 0 };
    let columns: Vec<Column<'_>> = heads.into_iter().enumerate().map(column).collect();
    let lines: Vec<Line> = rows.into_iter().map(|row| Line::Row(row.map(Field::from).into())).collect();
    table(&columns, &lines, width)
}

/// Returns the text with at most `width` characters: if it is longer, its middle is left out.
fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let letters: Vec<char> = text.chars().collect();
    let take = |letters: &mut dyn Iterator<Item = &char>, room: usize| {
        let mut taken = Vec::new();
        let mut left = room;
        for letter in letters {
            let Some(rest) = left.checked_sub(letter.width().unwrap_or(0)) else { break };
            (left, _) = (rest, taken.push(*letter));
        }
        taken
    };
    let room = width.saturating_sub(1);
    let head = take(&mut letters.iter(), room / 2);
    let tail = take(&mut letters.iter().rev(), room - room / 2);
    let cut: String = head.into_iter().chain(['…']).chain(tail.into_iter().rev()).collect();
    // A wide character can leave one place empty.
    let missing = width.saturating_sub(cut.width());
    cut + &" ".repeat(missing)
}

/// Returns a text as the screen shows it: long sentences are wrapped, marks become colours, and other invisible characters become
/// visible.
pub(super) fn finish(text: &str, screen: &Screen) -> String {
    let mut out = String::new();
    for line in text.lines() {
        for part in if screen.wraps { wrap(line, screen.width) } else { vec![line.to_owned()] } {
            for letter in part.chars() {
                match letter {
                    BETTER | WORSE | END if !screen.colour => {}
                    BETTER => out += "\u{1b}[32m",
                    WORSE => out += "\u{1b}[31m",
                    END => out += "\u{1b}[0m",
                    letter if is_unseen(letter) => out.push('\u{fffd}'),
                    letter => out.push(letter),
                }
            }
            out.push('\n');
        }
    }
    out
}

/// Breaks a line at spaces. The further lines are indented as the first.
fn wrap(line: &str, width: usize) -> Vec<String> {
    let is_mark = |letter: char| [BETTER, WORSE, END].contains(&letter);
    let seen = |text: &str| text.chars().filter(|letter| !is_mark(*letter)).collect::<String>().width();
    if seen(line) <= width {
        return vec![line.to_owned()];
    }
    let indent: String = line.chars().take_while(|letter| *letter == ' ').take(width / 2).collect();
    let (mut lines, mut current) = (Vec::new(), indent.clone());
    for word in line.split(' ').filter(|word| !word.is_empty()) {
        let is_first = current.trim().is_empty();
        if !is_first && seen(&current) + 1 + seen(word) > width {
            lines.push(std::mem::replace(&mut current, indent.clone()));
        }
        if !current.trim().is_empty() {
            current.push(' ');
        }
        current += word;
    }
    lines.push(current);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column<'static>; 4] = [
        Column { head: "", right: false, drop: 0, shorten: 0 },
        Column { head: "rate", right: true, drop: 0, shorten: 0 },
        Column { head: "share", right: true, drop: 1, shorten: 0 },
        Column { head: "against", right: false, drop: 0, shorten: 2 },
    ];

    fn lines() -> Vec<Line> {
        let against = Field::from("2.00x (1.90-2.10)").or("2.00x".into()).toned(Tone::Better);
        vec![
            Line::Heading("rr-1-1, 1 pair".into()),
            Line::Row(vec!["hipersockets-routed".into(), "42,561".into(), "12.5".into(), against]),
        ]
    }

    #[test]
    fn a_table_drops_columns_and_shortens_fields_before_it_cuts_a_name() {
        let shown = |width| finish(&table(&COLUMNS, &lines(), width), &Screen::default());
        assert_eq!(
            shown(60),
            "                       rate  share  against\nrr-1-1, 1 pair\n\
             hipersockets-routed  42,561   12.5  2.00x (1.90-2.10)\n"
        );
        assert!(shown(50).ends_with("hipersockets-routed  42,561  2.00x (1.90-2.10)\n"), "{}", shown(50));
        assert!(shown(40).ends_with("hipersockets-routed  42,561  2.00x\n"), "{}", shown(40));
        assert!(shown(30).contains("…"), "{}", shown(30));
        for width in 26..70 {
            let text = shown(width);
            assert!(text.lines().all(|line| line.width() <= width), "{width}: {text}");
            assert_eq!(text.lines().count(), 3, "a row is broken: {text}");
        }
    }

    #[test]
    fn a_colour_takes_no_room_and_is_absent_without_colours() {
        let text = table(&COLUMNS, &lines(), 60);
        let coloured = finish(&text, &Screen { width: 60, wraps: true, colour: true });
        assert!(coloured.ends_with("\u{1b}[32m2.00x (1.90-2.10)\u{1b}[0m\n"), "{coloured:?}");
        assert_eq!(coloured.replace("\u{1b}[32m", "").replace("\u{1b}[0m", ""), finish(&text, &Screen::default()));
        assert_eq!(finish("a\u{202e}b\u{7}", &Screen::default()), "a\u{fffd}b\u{fffd}\n");
    }

    #[test]
    fn a_long_sentence_is_wrapped_on_a_terminal_only() {
        let screen = Screen { width: 12, wraps: true, colour: false };
        assert_eq!(finish("  one two three four\nfive", &screen), "  one two\n  three four\nfive\n");
        assert_eq!(finish("  one two three four", &Screen::default()), "  one two three four\n");
        assert_eq!(finish("averylongwordthatdoesnotfit x", &screen), "averylongwordthatdoesnotfit\nx\n");
    }
}
