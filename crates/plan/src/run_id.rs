//! Run identifiers of z/VM's report on levels 420 and 430, such as `420hss12`.
//!
//! An identifier has a letter or a number for each property of a run:
//!
//! | part | meaning |
//! |---|---|
//! | `420`, `311` or `208` | level: 420; `311` is level 430, and `208` is level 430 over CLAW and virtual CTC |
//! | `h`, `g`, `q`, `c` or `v` | connectivity: HiperSockets, Guest LAN, QDIO, CLAW, virtual CTC |
//! | two letters | workload (`s` streaming, `c` CRR, `r` RR) and frames (`s`: usual MTU, `b`: 57,344 bytes). QDIO has the frames first (`n`: 1,500 bytes, `j`: 8,992 bytes) |
//! | `1`, `5` or `a` | 1, 5 or 10 clients |
//! | a number | trial. The report has trials 1 to 3. The number may be left out |

use crate::matrix::Cell;
use crate::path::guest::{GuestPath, Medium};
use siga_model::error::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// A run identifier. Without its trial, it names a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunId {
    link: Link,
    workload: Load,
    /// The frames are larger than the usual ones of the connectivity.
    large: bool,
    /// The level is 430.
    improved: bool,
    clients: u32,
    trial: Option<u32>,
}

/// The connectivity of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Link {
    Hipersockets,
    GuestLan,
    Qdio,
    Claw,
    Vctc,
}

/// The workload of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Load {
    Streaming,
    Crr,
    Rr,
}

/// Greatest number of a trial. The report has at most 3, a run of siga has one for each round.
const TRIAL_MAX: u32 = 9_999;

impl Link {
    const ALL: [(char, Self, &'static str); 5] = [
        ('h', Self::Hipersockets, "HiperSockets"),
        ('g', Self::GuestLan, "Guest LAN"),
        ('q', Self::Qdio, "QDIO"),
        ('c', Self::Claw, "CLAW"),
        ('v', Self::Vctc, "virtual CTC"),
    ];

    /// Returns the letters of usual and of larger frames, and their MTUs.
    fn frames(self) -> &'static [(char, bool, u32)] {
        match self {
            Self::Hipersockets | Self::GuestLan => &[('s', false, 1_500), ('b', true, 57_344)],
            Self::Qdio => &[('n', false, 1_500), ('j', true, 8_992)],
            Self::Claw => &[('s', false, 2_000)],
            Self::Vctc => &[('s', false, 1_500)],
        }
    }

    /// Returns the number of level 430 in identifiers.
    fn improved(self) -> &'static str {
        match self {
            Self::Hipersockets | Self::GuestLan | Self::Qdio => "311",
            Self::Claw | Self::Vctc => "208",
        }
    }

    fn of(medium: Medium) -> Option<Self> {
        match medium {
            Medium::Hipersockets => Some(Self::Hipersockets),
            Medium::GuestlanHipers => Some(Self::GuestLan),
            Medium::Qdio1Gbe => Some(Self::Qdio),
            Medium::Claw => Some(Self::Claw),
            Medium::Vctc => Some(Self::Vctc),
            Medium::Ctc
            | Medium::Netiucv
            | Medium::Lcs
            | Medium::GuestlanQdio
            | Medium::Vswitch
            | Medium::Qdio1000BaseT
            | Medium::Qdio10Gbe => None,
        }
    }

    fn letter_and_name(self) -> (char, &'static str) {
        Self::ALL.iter().find(|(_, link, _)| *link == self).map_or(('?', "?"), |(letter, _, name)| (*letter, *name))
    }
}

impl Load {
    const ALL: [(char, Self, &'static str); 3] =
        [('s', Self::Streaming, "strg-20m"), ('c', Self::Crr, "crr-64-8k"), ('r', Self::Rr, "rr-200-1000")];
}

const CLIENTS: [(char, u32); 3] = [('1', 1), ('5', 5), ('a', 10)];

impl RunId {
    /// Returns the identifier of a cell without a trial; `None` if the report has no such cell. A cell of the report has a router, and
    /// its level is 420 or 430.
    pub fn of(cell: &Cell) -> Option<Self> {
        let path: GuestPath = cell.path.parse().ok().filter(|path: &GuestPath| path.routed)?;
        let link = Link::of(path.medium)?;
        let name = cell.workload.to_string();
        let (_, workload, _) = *Load::ALL.iter().find(|(.., workload)| *workload == name)?;
        let (_, large, _) = *link.frames().iter().find(|(.., mtu)| Some(*mtu) == cell.mtu)?;
        let improved = match cell.level.as_str() {
            "420" => false,
            "430" => true,
            _ => return None,
        };
        let (_, clients) = *CLIENTS.iter().find(|(_, clients)| *clients == cell.clients)?;
        Some(Self { link, workload, large, improved, clients, trial: None })
    }

    /// Returns true if the identifier names this cell. The trial does not matter.
    pub fn names(self, cell: &Cell) -> bool {
        Self::of(cell) == Some(self.of_cell())
    }

    /// Returns the identifier without its trial.
    #[must_use]
    pub fn of_cell(self) -> Self {
        Self { trial: None, ..self }
    }

    /// Returns the identifier with this trial, counted from 1.
    #[must_use]
    pub fn with_trial(self, trial: u32) -> Self {
        Self { trial: Some(trial.clamp(1, TRIAL_MAX)), ..self }
    }

    /// Returns the number of the trial.
    pub fn trial(self) -> Option<u32> {
        self.trial
    }

    /// Returns the number of clients.
    pub fn clients(self) -> u32 {
        self.clients
    }

    /// Returns the level: `420` or `430`.
    pub fn level(self) -> &'static str {
        if self.improved { "430" } else { "420" }
    }

    /// Returns the MTU in bytes.
    pub fn mtu(self) -> u32 {
        self.link.frames().iter().find(|(_, large, _)| *large == self.large).map_or(0, |(.., mtu)| *mtu)
    }

    /// Returns the name of siga's workload.
    pub fn workload(self) -> &'static str {
        Load::ALL.iter().find(|(_, load, _)| *load == self.workload).map_or("", |(.., name)| *name)
    }

    /// Returns the connectivity in words.
    pub fn connectivity(self) -> &'static str {
        self.link.letter_and_name().1
    }

    fn parse(text: &str) -> std::result::Result<Self, String> {
        let mut rest = text.chars();
        let build: String = rest.by_ref().take(3).collect();
        if !["420", "311", "208"].contains(&build.as_str()) {
            return Err("it must begin with the level: 420, 311 or 208".to_owned());
        }
        let link = rest.next().and_then(|letter| Link::ALL.iter().find(|(own, ..)| *own == letter));
        let (letter, link, name) = *link.ok_or("the fourth character must be the connectivity: h, g, q, c or v")?;
        if build != "420" && build != link.improved() {
            return Err(format!("level 430 over {name} is {}, not {build}", link.improved()));
        }
        let (Some(first), Some(second)) = (rest.next(), rest.next()) else {
            return Err("the workload and the frames are missing".to_owned());
        };
        let (workload, frames) = if link == Link::Qdio { (second, first) } else { (first, second) };
        let of_workload = Load::ALL.iter().find(|(own, ..)| *own == workload);
        let (_, load, _) = *of_workload
            .ok_or_else(|| format!("`{workload}` is no workload; s is streaming, c is CRR, and r is RR"))?;
        let of_frames = link.frames().iter().find(|(own, ..)| *own == frames);
        let (_, large, _) = *of_frames.ok_or_else(|| {
            let known = link.frames().iter().map(|(letter, _, mtu)| format!("{letter} is an MTU of {mtu}"));
            format!("`{frames}` is no size of frames over {name}; {}", known.collect::<Vec<_>>().join(", and "))
        })?;
        let of_clients = rest.next().and_then(|letter| CLIENTS.iter().find(|(own, _)| *own == letter));
        let (_, clients) = *of_clients.ok_or_else(|| {
            format!("after `{build}{letter}{first}{second}` comes the number of clients: 1, 5, or a for 10")
        })?;
        let trial = match rest.as_str() {
            "" => None,
            digits => {
                let number = digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| digits.parse::<u32>().ok());
                let number = number.flatten().filter(|number| (1..=TRIAL_MAX).contains(number));
                let plain = number.filter(|_| !digits.starts_with('0'));
                Some(plain.ok_or_else(|| format!("it must end with the number of a trial, and not with `{digits}`"))?)
            }
        };
        Ok(Self { link, workload: load, large, improved: build != "420", clients, trial })
    }
}

impl FromStr for RunId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text).map_err(|why| {
            Error::usage(format!("`{text}` is not a run identifier of z/VM's report: {why}")).hint(
                "a run identifier is, for example, 420hss12: level, connectivity, workload, frames, clients, trial; \
                 published/README.md has the letters",
            )
        })
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (link, _) = self.link.letter_and_name();
        let workload = Load::ALL.iter().find(|(_, load, _)| *load == self.workload).map_or('?', |(letter, ..)| *letter);
        let frames = self.link.frames().iter().find(|(_, large, _)| *large == self.large);
        let frames = frames.map_or('?', |(letter, ..)| *letter);
        let (first, second) = if self.link == Link::Qdio { (frames, workload) } else { (workload, frames) };
        let clients = CLIENTS.iter().find(|(_, clients)| *clients == self.clients).map_or('?', |(letter, _)| *letter);
        let build = if self.improved { self.link.improved() } else { "420" };
        let trial = self.trial.map(|trial| trial.to_string()).unwrap_or_default();
        f.pad(&format!("{build}{link}{first}{second}{clients}{trial}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(path: &str, workload: &str, mtu: u32, clients: u32, level: &str) -> Cell {
        Cell {
            path: path.to_owned(),
            workload: workload.parse::<crate::workload::Workload>().unwrap().into(),
            mtu: Some(mtu),
            clients,
            level: level.to_owned(),
        }
    }

    #[test]
    fn an_identifier_names_its_cell_and_no_other() {
        for (text, own) in [
            ("420hss12", cell("hipersockets-routed-iucv", "strg-20m", 1_500, 1, "420")),
            ("311hsba3", cell("hipersockets-routed", "strg-20m", 57_344, 10, "430")),
            ("311gcs5", cell("guestlan-hipers-routed-iucv", "crr-64-8k", 1_500, 5, "430")),
            ("420qjs1", cell("qdio-1gbe-routed", "strg-20m", 8_992, 1, "420")),
            ("208css1", cell("claw-routed-iucv", "strg-20m", 2_000, 1, "430")),
            ("208vrsa12", cell("vctc-routed-iucv", "rr-200-1000", 1_500, 10, "430")),
        ] {
            let id: RunId = text.parse().unwrap();
            assert_eq!(id.to_string(), text);
            assert_eq!(RunId::of(&own), Some(id.of_cell()), "{text}");
            assert!(id.names(&own), "{text}");
            for other in [
                Cell { clients: if own.clients == 1 { 5 } else { 1 }, ..own.clone() },
                Cell { level: "plain".into(), ..own.clone() },
                Cell { mtu: Some(9_000), ..own.clone() },
                Cell { path: "hipersockets".into(), ..own.clone() },
                cell(&own.path, "rr-1-1", own.mtu.unwrap(), own.clients, &own.level),
            ] {
                assert!(!id.names(&other), "{text} {other}");
            }
        }
    }

    #[test]
    fn a_wrong_identifier_is_refused_with_the_part_that_is_wrong() {
        for (text, part) in [
            ("", "level: 420, 311 or 208"),
            ("430hss11", "level: 420, 311 or 208"),
            ("420", "connectivity: h, g, q, c or v"),
            ("420xss11", "connectivity: h, g, q, c or v"),
            ("208hss11", "level 430 over HiperSockets is 311, not 208"),
            ("311vss11", "level 430 over virtual CTC is 208, not 311"),
            ("420h", "the workload and the frames are missing"),
            ("420hxs11", "`x` is no workload"),
            ("420hsn11", "`n` is no size of frames over HiperSockets; s is an MTU of 1500, and b is an MTU of 57344"),
            ("420qsn11", "`n` is no workload"),
            ("420hss", "the number of clients: 1, 5, or a for 10"),
            ("420hss21", "the number of clients: 1, 5, or a for 10"),
            ("420hss10", "the number of a trial, and not with `0`"),
            ("420hss101", "the number of a trial, and not with `01`"),
            ("420hss1x", "the number of a trial, and not with `x`"),
            ("420hss1+1", "the number of a trial, and not with `+1`"),
            ("420hss199999", "the number of a trial"),
        ] {
            let error = text.parse::<RunId>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
