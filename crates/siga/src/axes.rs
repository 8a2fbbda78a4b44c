//! The axes of a plan as command-line options, which replace the values in the plan.

use clap::{Args, FromArgMatches};
use siga_measure::config;
use siga_model::error::{Error, Result};
use siga_model::text;
use siga_model::waiting::Waiting;
use siga_plan::accounting::AccountingMethod;
use siga_plan::command::{Command, CommandName};
use siga_plan::level::Level;
use siga_plan::offered::Offered;
use siga_plan::plan::Plan;
use siga_plan::route::HOST;
use siga_plan::workload::Close;
use std::net::IpAddr;
use std::path::Path;

/// The names that options of `run` and `plan` take.
macro_rules! names {
    () => {
        "\
Paths of the kernel:
            loopback, unix, veth, veth-routed, bridge, macvlan, bond, vlan, ipvlan, smc-loopback, sockmap
Paths of siga's own networks:
            hipersockets, hipersockets-routed, vctc, vctc-routed
            with applications over IUCV: hipersockets-iucv, hipersockets-routed-iucv, vctc-iucv, vctc-routed-iucv
Workloads:  rr-1-1, rr-200-1000, rr-200-32k, crr-64-8k, strg-20m, strp-20m, strb-20m, udp-strg-1400,
            or rr:REQUEST/RESPONSE, crr:, strg:, strp:, strb:, udp-rr: (k, m, g are 1,024 and its powers),
            or udp-strg:BYTES, udp-strg:BYTES@RATE: datagrams of this size, at a rate such as 50MB/s
            for each pair,
            or rr-1-1+4strg: request-response beside 4 streams, which shows latency under load
Levels:     plain, aa, bigtcp, gro-on, gro-off, reno, cubic, bbr, mtu-1500, mtu-8992,
            nft-100-rules, conntrack, netem, fq, bbr-fq, io-uring, threaded-napi,
            420 and 430 (siga's own networks), or a TOML file, or a file with nft rules (.nft)
Places:     local, netns:NAME (a network namespace), pid:PID (a container), ssh:[USER@]HOST
            (for --client and --server)
Plans:      default, ablation, guests, hop, mtu, paths, zvm430-memory, or a TOML file

"
    };
}

/// Measured seconds of a trial of `--command`. Within it, a short command runs often enough for a mean; a long one runs once.
const COMMAND_SECONDS: f64 = 0.5;

/// Shown below the options of `run`.
pub(crate) const HELP: &str = concat!(
    names!(),
    "
Examples:
  siga run --path veth,veth-routed --workload rr-200-1000 --clients 1,10 --trials 6
  siga run --path veth --mtu 1500,8992 --workload strg-20m --level plain,bigtcp
  siga run --path loopback --workload rr-1-1 --processes --wait poll --client-cpus 0 --server-cpus 1
  siga run --path veth --workload rr-200-1000 --rate 5000
  siga run --path veth --workload rr-200-1000 --load 10%,50%,90%
  siga run --path veth,hipersockets --workload rr-1-1,rr-1-1+4strg,strb-20m --clients 1
  siga run --path veth,hipersockets --workload udp-strg:1400@50MB/s,udp-strg-1400 --clients 1
  siga run --path hipersockets-routed,veth-routed --workload rr-200-1000
  siga run hop
  siga run --firewall office.nft
  siga run --command 'gzip -9 -c FILE'
  siga run --command 'sort FILE' --level-env LC_ALL=C --level-env LC_ALL=C.UTF-8
  siga run --path hipersockets-routed-iucv --mtu 1500 --level 420,430 --layout zvm
  siga run --client local --server ssh:host --server-address 192.0.2.7 --port 5001"
);

/// Shown below the options of `plan`.
pub(crate) const PLAN_HELP: &str = concat!(
    names!(),
    "
Examples:
  siga plan                                   the default plan
  siga plan paths --clients 1,10,100
  siga plan mtu --trials 12"
);

/// The axes and settings of a plan.
#[derive(Debug, PartialEq, Args)]
pub(crate) struct Axes {
    /// Name of a shipped plan, or path of a TOML file.
    #[arg(default_value = "default")]
    pub(crate) plan: String,
    /// Measure a command instead of a plan: a program with its arguments, such as 'zstd -3 -c FILE'. siga runs the command repeatedly,
    /// without a shell. Default: the workloads of the plan.
    #[arg(long, value_name = "LINE", conflicts_with_all = ["plan", "path", "workload", "client"])]
    command: Option<String>,
    /// Run the line of --command with `sh -c`.
    #[arg(long, requires = "command")]
    shell: bool,
    /// Limit the time of one run of the command in seconds. Default: 600.
    #[arg(long, value_name = "S", requires = "command")]
    time_limit: Option<f64>,
    /// Add a level that sets an environment variable for commands. siga compares each of these levels with the first; a single one,
    /// with the level plain. Default: the levels of --level or of the plan.
    #[arg(long, conflicts_with_all = ["level", "firewall"], value_name = "NAME=VALUE")]
    level_env: Vec<String>,
    /// Set the paths that siga builds. Default: the paths of the plan.
    #[arg(long, value_delimiter = ',', value_name = "PATH,…")]
    path: Option<Vec<String>>,
    /// Set the workloads. Default: the workloads of the plan.
    #[arg(long, value_delimiter = ',', value_name = "WORKLOAD,…")]
    workload: Option<Vec<String>>,
    /// Set the numbers of client-server pairs (1 to 10,000). Default: the numbers of the plan.
    #[arg(long, value_delimiter = ',', value_name = "N,…")]
    clients: Option<Vec<u32>>,
    /// Set the MTUs in bytes. Default: each path has its own default MTU.
    #[arg(long, value_delimiter = ',', value_name = "BYTES,…")]
    mtu: Option<Vec<u32>>,
    /// Set the levels to compare. A level is a named set of settings; siga compares each level with the first. Default:
    /// the levels of the plan.
    #[arg(long, value_delimiter = ',', value_name = "LEVEL,…")]
    level: Option<Vec<String>>,
    /// Compare packet filters with no packet filter. Each file contains rules in nft's syntax, which siga loads only in
    /// the router's namespace. The path is veth-routed unless --path sets other paths. Default: no packet filter.
    #[arg(long, value_delimiter = ',', conflicts_with = "level", value_name = "FILE.nft,…")]
    firewall: Option<Vec<String>>,
    /// Set the number of trials of each cell. Default: as many as the comparison needs, at most 30, within the budget.
    #[arg(long, value_name = "N")]
    trials: Option<u32>,
    /// Set the measured time of a trial in seconds. Default: the value of the plan, or 1.
    #[arg(long, value_name = "S")]
    seconds: Option<f64>,
    /// Set the warm-up time before each trial in seconds, which is not measured. Default: the value of the plan, or
    /// 0.25.
    #[arg(long, value_name = "S")]
    warm_up: Option<f64>,
    /// Limit the time of the whole run in seconds. The first round always completes. Default: the limit of the plan; no
    /// limit for a comparison of levels.
    #[arg(long, value_name = "S")]
    budget: Option<f64>,
    /// Use IPv6 instead of IPv4.
    #[arg(long)]
    ipv6: bool,
    /// Use one process for each client-server pair (at most 1,000 pairs) instead of one epoll process for all pairs.
    #[arg(long)]
    processes: bool,
    /// Set how client and server wait for data: sleep at once (block), never sleep (poll), or poll while traffic is
    /// recent and then sleep (adaptive; only on siga's own networks). Default: the value of the plan, or block.
    #[arg(long, value_parser = wait, value_name = "block|adaptive|poll")]
    wait: Option<Waiting>,
    /// Set the side that closes a CRR connection first. Default: the value of the plan, or server.
    #[arg(long, value_parser = close, value_name = "server|client")]
    close: Option<Close>,
    /// Set the largest size of a single write. Default: the value of the plan, or 128k.
    #[arg(long, value_name = "SIZE")]
    write: Option<String>,
    /// Start transactions at planned times (open loop), at this rate for all pairs together. Default: each pair sends
    /// its next request after a response (closed loop).
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<f64>,
    /// After the closed loop, also measure an open loop at these percentages of its rate, such as 10%,50%,90%. Latency
    /// counts from the planned start of each transaction. Default: none.
    #[arg(long, value_delimiter = ',', conflicts_with = "rate", value_name = "PERCENT,…")]
    load: Option<Vec<Offered>>,
    /// Run the client only on these CPUs, such as 0 or 0-3,8. Default: the scheduler chooses.
    #[arg(long, value_name = "CPUS")]
    client_cpus: Option<String>,
    /// Run the server only on these CPUs. Default: the scheduler chooses.
    #[arg(long, value_name = "CPUS")]
    server_cpus: Option<String>,
    /// Set the method of CPU accounting: profile, subtract or tick. Default: the best method that the host supports.
    #[arg(long, value_parser = method, value_name = "METHOD")]
    accounting: Option<AccountingMethod>,
    /// Run the client on an existing host, namespace or container (needs --server, replaces --path). Default: siga
    /// builds paths.
    #[arg(long, requires = "server", conflicts_with = "path", value_name = "PLACE")]
    client: Option<String>,
    /// Run the server on an existing host, namespace or container (needs --client, replaces --path). Default: siga
    /// builds paths.
    #[arg(long, requires = "client", conflicts_with = "path", value_name = "PLACE")]
    server: Option<String>,
    /// Set the address to which the client connects. Default: the first address of the server's host, namespace or
    /// container.
    #[arg(long, value_name = "ADDRESS")]
    server_address: Option<IpAddr>,
    /// Set the port on which the server listens. Default: any free port.
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Set the congestion control algorithm of a measurement with --client and --server. Default: the host's algorithm.
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Add a known cost in microseconds, to check that siga finds it: client=US or server=US for each transaction,
    /// router=US for each packet, profiler=US for each packet of the router while the profiler runs, or delay=US.
    /// Default: none.
    #[arg(long, value_delimiter = ',', value_name = "WHERE=US,…")]
    plant: Option<Vec<String>>,
    /// Run one round of short trials, only to check that everything works.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Set the seed for the random order of trials. Default: the current time.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

impl Axes {
    /// Returns the plan, with the values of all given options.
    pub(crate) fn plan(&self) -> Result<Plan> {
        let mut plan = match &self.command {
            Some(line) => self.of_command(line)?,
            None => Plan::load(&self.plan)?,
        };
        let own_cells = self.path.is_some() || self.client.is_some() || self.workload.is_some();
        if own_cells {
            // Single cells (`include`, `exclude`) belong to the plan's own axes. They are dropped if an option replaces an axis.
            plan.include.clear();
            plan.exclude.clear();
        }
        if let (Some(client), Some(server)) = (&self.client, &self.server) {
            plan.paths = vec![format!("{client}>{server}")];
        }
        set(&mut plan.paths, self.path.as_ref());
        set(&mut plan.workloads, self.workload.as_ref());
        set(&mut plan.clients, self.clients.as_ref());
        set(&mut plan.mtus, self.mtu.as_ref());
        set(&mut plan.levels, self.level.as_ref());
        self.firewall(&mut plan)?;
        self.environments(&mut plan);
        set(&mut plan.seconds, self.seconds.as_ref());
        set(&mut plan.warm_up_seconds, self.warm_up.as_ref());
        set(&mut plan.load, self.load.as_ref());
        set(&mut plan.wait, self.wait.as_ref());
        set(&mut plan.close, self.close.as_ref());
        set(&mut plan.write, self.write.as_ref());
        set(&mut plan.reach.port, self.port.as_ref());
        plan.ipv6 |= self.ipv6;
        plan.processes |= self.processes;
        plan.client_cpus = self.client_cpus.clone().or(plan.client_cpus);
        plan.server_cpus = self.server_cpus.clone().or(plan.server_cpus);
        plan.rate = self.rate.or(plan.rate);
        plan.accounting = self.accounting.or(plan.accounting);
        plan.reach.server_address = self.server_address.or(plan.reach.server_address);
        plan.reach.congestion = self.congestion.clone().or(plan.reach.congestion);
        plan.seed = self.seed.or(plan.seed);
        let compares_levels = self.level.as_ref().is_some_and(|levels| levels.len() > 1)
            || self.firewall.is_some()
            || !self.level_env.is_empty();
        if self.trials.is_some() || compares_levels {
            // The plan's budget must not cut off trials that the user asked for, nor the trials that a comparison of levels needs.
            plan.budget_seconds = None;
        }
        plan.trials = self.trials.or(plan.trials);
        plan.budget_seconds = self.budget.or(plan.budget_seconds);
        self.quick(&mut plan);
        for planted in self.plant.iter().flatten() {
            plant(&mut plan, planted)?;
        }
        for notice in plan.notices() {
            crate::note(&format!("note: {notice}"));
        }
        Ok(plan)
    }

    /// Returns true if neither a plan nor any of these options is given.
    pub(crate) fn is_empty(&self) -> bool {
        let command = Self::augment_args(clap::Command::new("siga"));
        let none = command.try_get_matches_from(["siga"]).and_then(|matches| Self::from_arg_matches(&matches));
        none.is_ok_and(|none| none == *self)
    }

    /// Returns the plan of --command.
    fn of_command(&self, line: &str) -> Result<Plan> {
        let read = if self.shell { Command::from_shell_line(line) } else { Command::from_line(line) };
        let mut command = read.map_err(|error| error.at("--command"))?;
        set(&mut command.time_limit_seconds, self.time_limit.as_ref());
        // A line for a shell may begin with anything; its first word names it best.
        let program = command.command[0].split_whitespace().next().unwrap_or_default();
        let name = CommandName::of_program(program).to_string();
        Ok(Plan {
            name: name.clone(),
            question: format!("How long does {name} take, and what CPU time?"),
            paths: vec![HOST.to_owned()],
            workloads: vec![name.clone()],
            workload: [(name, command)].into(),
            seconds: COMMAND_SECONDS,
            warm_up_seconds: 0.0,
            ..Plan::default()
        })
    }

    /// Replaces the levels by those that set variables of the environment.
    fn environments(&self, plan: &mut Plan) {
        let levels = self.level_env.iter().map(|variable| format!("{}{variable}", Level::ENVIRONMENT));
        match self.level_env.len() {
            0 => {}
            1 => plan.levels = ["plain".to_owned()].into_iter().chain(levels).collect(),
            _ => plan.levels = levels.collect(),
        }
    }

    /// Adds the levels `plain` and one for each packet filter.
    fn firewall(&self, plan: &mut Plan) -> Result<()> {
        let Some(files) = &self.firewall else { return Ok(()) };
        if let Some(file) = files.iter().find(|file| !file.ends_with(".nft")) {
            return Err(Error::usage(format!("--firewall {file}: the name of a packet filter file must end in .nft"))
                .hint(
                    "name a file with rules in nft's syntax, or use --level with a shipped level such as conntrack",
                ));
        }
        plan.levels = ["plain".to_owned()].into_iter().chain(files.iter().cloned()).collect();
        plan.question = "What does the packet filter cost, and where?".to_owned();
        if self.path.is_none() && self.client.is_none() {
            plan.paths = vec!["veth-routed".to_owned()];
            plan.include.clear();
            plan.exclude.clear();
        }
        Ok(())
    }

    fn quick(&self, plan: &mut Plan) {
        if self.quick {
            plan.smoke = true;
            plan.seconds = self.seconds.unwrap_or(0.2);
            plan.warm_up_seconds = self.warm_up.unwrap_or(0.05);
            plan.trials = self.trials.or(Some(1));
            plan.budget_seconds = self.budget;
        }
    }
}

/// The command that reaches other hosts. It is not part of a plan, so that neither a plan nor a run directory executes anything.
#[derive(Debug, Args)]
pub(crate) struct Reach {
    /// Set the command that connects to other hosts (ssh:HOST). Default: the command in ~/.config/siga/config.toml, or
    /// ssh.
    #[arg(long, value_name = "COMMAND")]
    pub(crate) ssh: Option<String>,
}

impl Reach {
    /// Returns the command that reaches these hosts.
    pub(crate) fn command(&self, hosts: &[String]) -> Result<String> {
        match (&self.ssh, hosts) {
            // No host is reached, so the command is never executed and the configuration file is not needed.
            (None, []) => Ok(config::SSH.to_owned()),
            (Some(_), []) => Err(Error::usage("--ssh has no effect, because client and server do not use ssh")
                .hint("use --client and --server with ssh:HOST, or remove --ssh")),
            (given, _) => config::ssh(given.as_deref()),
        }
    }

    /// Returns the command for a resumed run. Only `--ssh` can set it, because the hosts come from the run directory, which another
    /// user may have written.
    pub(crate) fn command_again(&self, hosts: &[String], directory: &Path) -> Result<String> {
        if let (None, [first, others @ ..]) = (&self.ssh, hosts) {
            let known = config::ssh(None).unwrap_or_else(|_| config::SSH.to_owned());
            let hosts = others.iter().fold(format!("ssh:{first}"), |all, host| format!("{all}, ssh:{host}"));
            return Err(Error::usage(format!("the run in {} connects to {hosts}", directory.display())).hint(format!(
                "siga executes no command from a run directory; to allow these hosts: `siga run --resume {} --ssh {}`",
                text::shell(&directory.to_string_lossy()),
                text::shell(&known)
            )));
        }
        self.command(hosts)
    }
}

fn set<T: Clone>(target: &mut T, given: Option<&T>) {
    if let Some(given) = given {
        target.clone_from(given);
    }
}

fn plant(plan: &mut Plan, text: &str) -> Result<()> {
    let bad = || {
        Error::usage(format!("`{text}` is not a cost to plant"))
            .hint("--plant accepts client=US, server=US, router=US, profiler=US and delay=US")
    };
    let (place, us) = text.split_once('=').ok_or_else(bad)?;
    let us: f64 = us.parse().map_err(|_| bad())?;
    match place {
        "client" => plan.plant.client_us = us,
        "server" => plan.plant.server_us = us,
        "router" => plan.plant.router_us = us,
        "profiler" => plan.plant.profiler_us = us,
        "delay" => plan.plant.delay_us = us,
        _ => return Err(bad()),
    }
    Ok(())
}

fn wait(text: &str) -> std::result::Result<Waiting, String> {
    Waiting::ALL.into_iter().find(|wait| wait.name() == text).ok_or_else(|| "use block, adaptive or poll".into())
}

fn close(text: &str) -> std::result::Result<Close, String> {
    match text {
        "server" => Ok(Close::Server),
        "client" => Ok(Close::Client),
        _ => Err("use server or client".into()),
    }
}

/// Parses a method of CPU accounting.
pub(crate) fn method(text: &str) -> std::result::Result<AccountingMethod, String> {
    let found = [AccountingMethod::Profile, AccountingMethod::Subtract, AccountingMethod::Tick]
        .into_iter()
        .find(|method| method.to_string() == text);
    found.ok_or_else(|| "use profile, subtract or tick".into())
}
