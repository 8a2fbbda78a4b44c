//! The live table on a terminal. It uses the alternate screen, and restores the terminal when it is dropped.

use ratatui::backend::TermionBackend;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::termion::raw::{IntoRawMode, RawTerminal};
use ratatui::termion::screen::{AlternateScreen, IntoAlternateScreen};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Cell, Paragraph, Row, Table};
use ratatui::{Frame, Terminal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use siga_model::error::{IoContext, Result};
use siga_model::text;
use siga_report::monitor::{Grid, heading};
use siga_results::monitor::Sample;
use std::io::{Stdout, stdin, stdout};
use std::time::Duration;

/// The keys that end the command: q, and Ctrl-C as a terminal in raw mode sends it.
const QUIT: [u8; 2] = [b'q', 3];

/// A live table.
pub(super) struct Live {
    terminal: Terminal<TermionBackend<AlternateScreen<RawTerminal<Stdout>>>>,
    view: View,
}

/// What the screen shows.
#[derive(Debug, Default)]
struct View {
    target: String,
    sample: Option<Sample>,
    /// The first row on the screen.
    first: usize,
}

impl Live {
    pub(super) fn begin() -> Result<Self> {
        let raw = stdout().into_raw_mode().context("cannot change the mode of the terminal")?;
        let screen = raw.into_alternate_screen().context("cannot write to the terminal")?;
        let mut terminal = Terminal::new(TermionBackend::new(screen)).context("cannot write to the terminal")?;
        terminal.hide_cursor().context("cannot write to the terminal")?;
        let mut live = Self { terminal, view: View::default() };
        live.draw()?;
        Ok(live)
    }

    pub(super) fn show(&mut self, target: &str, sample: Sample) -> Result<()> {
        self.view.target = target.to_owned();
        self.view.sample = Some(sample);
        self.draw()
    }

    fn draw(&mut self) -> Result<()> {
        let view = &mut self.view;
        self.terminal.draw(|frame| view.draw(frame)).map(drop).context("cannot write to the terminal")
    }

    /// Waits for a key at most for this time. Returns true if the key ends the command, or if the terminal is gone.
    pub(super) fn wait(&mut self, time: Duration) -> bool {
        let Ok(limit) = Timespec::try_from(time) else { return false };
        let input = stdin();
        match poll(&mut [PollFd::new(&input, PollFlags::IN)], Some(&limit)) {
            Ok(0) | Err(_) => return false,
            Ok(_) => {}
        }
        let mut keys = [0; 64];
        match rustix::io::read(&input, &mut keys) {
            Ok(0) | Err(_) => true,
            Ok(count) => {
                let keys = &keys[..count];
                self.view.scroll(keys);
                keys.iter().any(|key| QUIT.contains(key)) || self.draw().is_err()
            }
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        let _ = self.terminal.show_cursor();
    }
}

impl View {
    /// Scrolls by the keys of a terminal: arrows, Page Up, Page Down, and those of `less`.
    fn scroll(&mut self, keys: &[u8]) {
        const PAGE: usize = 20;
        self.first = match keys {
            [0x1b, b'[' | b'O', b'A', ..] | [b'k', ..] => self.first.saturating_sub(1),
            [0x1b, b'[' | b'O', b'B', ..] | [b'j', ..] => self.first.saturating_add(1),
            [0x1b, b'[', b'5', ..] | [b'b', ..] => self.first.saturating_sub(PAGE),
            [0x1b, b'[', b'6', ..] | [b' ', ..] => self.first.saturating_add(PAGE),
            _ => self.first,
        };
    }

    fn draw(&mut self, frame: &mut Frame<'_>) {
        let Some(sample) = &self.sample else {
            frame.render_widget(Paragraph::new("siga monitor: waiting for the first sample (q ends)"), frame.area());
            return;
        };
        let area = frame.area();
        let [top, middle, bottom] =
            Layout::vertical([Constraint::Length(2), Constraint::Min(1), Constraint::Length(1)]).areas(area);
        let lines: Vec<Line<'_>> =
            heading(&self.target, sample).iter().map(|line| Line::raw(text::name(line))).collect();
        frame.render_widget(Paragraph::new(Text::from(lines)), top);
        let grid = Grid::of(sample, usize::from(area.width));
        let rows = usize::from(middle.height).saturating_sub(1);
        self.first = self.first.min(grid.rows.len().saturating_sub(rows));
        let last = (self.first + rows).min(grid.rows.len());
        frame.render_widget(table(&grid, self.first, last), middle);
        let place = format!("processes {} to {last} of {}; arrows scroll, q ends", self.first + 1, grid.rows.len());
        frame.render_widget(Paragraph::new(place), bottom);
    }
}

/// Returns the rows of a table from `first` to `last`.
fn table(grid: &Grid, first: usize, last: usize) -> Table<'_> {
    let row = |texts: &[String]| {
        let cell = |(at, text): (usize, &String)| {
            let line = Line::raw(text.clone());
            Cell::from(if grid.left[at] { line } else { line.right_aligned() })
        };
        Row::new(texts.iter().enumerate().map(cell).collect::<Vec<_>>())
    };
    let widths = grid.widths.iter().map(|width| Constraint::Length(u16::try_from(*width).unwrap_or(u16::MAX)));
    let head = row(&grid.head).style(Style::new().add_modifier(Modifier::BOLD));
    let shown = grid.rows.get(first..last).unwrap_or_default();
    Table::new(shown.iter().map(|texts| row(texts)), widths).header(head).column_spacing(2)
}

/// Waits for this time, or until a signal arrives.
pub(super) fn pause(time: Duration) {
    if let Ok(limit) = Timespec::try_from(time) {
        let _ = poll(&mut [], Some(&limit));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::backend::TestBackend;
    use siga_results::monitor::{CpuSample, HostSample, ProcessSample, Role, State, Who};

    fn view(processes: u32) -> View {
        let process = |pid: u32| ProcessSample {
            who: Who {
                name: format!("guest{pid}"),
                role: Role::Guest,
                guest: None,
                pid: Some(pid),
                state: State::Running,
                restarts: 0,
            },
            cpu: Some(CpuSample { virtual_ms: 30.0, cp_ms: 12.5, wait_ms: None, percent: 4.25 }),
            net: None,
        };
        let host = HostSample {
            cpus: 2,
            virtual_ms: 500.0,
            cp_ms: 250.0,
            idle_ms: 1_250.0,
            steal_ms: 0.0,
            cpu_pressure_ms: None,
            io_pressure_ms: None,
            memory_pressure_ms: None,
        };
        let monitor = CpuSample { virtual_ms: 1.0, cp_ms: 1.0, wait_ms: None, percent: 0.2 };
        let sample = Sample {
            at: "2026-11-27T20:00:00Z".into(),
            number: 1,
            seconds: 1.0,
            host,
            processes: (1..=processes).map(process).collect(),
            monitor,
        };
        View { target: "network n".into(), sample: Some(sample), first: 0 }
    }

    fn drawn(view: &mut View, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| view.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let cells: Vec<&str> = buffer.content.iter().map(|cell| cell.symbol()).collect();
        cells.chunks(usize::from(width)).map(|line| line.concat().trim_end().to_owned()).collect()
    }

    #[test]
    fn the_live_table_shows_host_and_processes_and_scrolls_to_the_last() {
        let mut view = view(30);
        let lines = drawn(&mut view, 160, 10);
        assert!(lines[0].starts_with("network n  2026-11-27T20:00:00Z  sample 1 (1.00 s)"), "{lines:#?}");
        assert!(lines[1].contains("25.0% virtual") && lines[1].contains("monitor: 0.20% of a CPU"), "{lines:#?}");
        let words: Vec<&str> = lines[3].split_whitespace().take(6).collect();
        assert_eq!(words, ["guest1", "guest", "1", "4.2", "30.0", "12.5"], "{lines:#?}");
        assert_eq!(lines[9], "processes 1 to 6 of 30; arrows scroll, q ends");
        view.scroll(b"\x1b[6~");
        view.scroll(b"\x1b[6~");
        let lines = drawn(&mut view, 160, 10);
        assert!(lines[8].starts_with("guest30") && lines[9].starts_with("processes 25 to 30"), "{lines:#?}");
        view.scroll(b"\x1b[A");
        assert!(drawn(&mut view, 160, 10)[8].starts_with("guest29"));
    }

    #[test]
    fn the_live_table_fits_a_small_terminal() {
        for (width, height) in [(40, 6), (1, 1), (20, 3)] {
            drawn(&mut view(3), width, height);
        }
        let lines = drawn(&mut view(3), 60, 6);
        assert!(lines[3].starts_with("guest1") && lines[2].contains("CPU %"), "{lines:#?}");
    }
}
