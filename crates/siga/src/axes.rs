//! The axes of a plan as command-line options, which replace the values in the plan.

use clap::{Args, FromArgMatches};
use siga_model::error::{Error, Result};
use siga_model::waiting::Waiting;
use siga_plan::accounting::AccountingMethod;
use siga_plan::command::{Command, CommandName};
use siga_plan::level::{CommandLevel, Level};
use siga_plan::offered::Offered;
use siga_plan::plan::Plan;
use siga_plan::route::HOST;
use siga_plan::run_id::RunId;
use siga_plan::workload::Close;
use std::net::IpAddr;

/// The names that options of `run` and `plan` take.
macro_rules! names {
    () => {
        "\
Paths of the kernel:
            loopback, unix, veth, veth-routed, bridge, macvlan, bond, vlan, ipvlan, smc-loopback,
            sockmap
Paths of siga's own networks:
            hipersockets, hipersockets-routed, vctc, vctc-routed, ctc, ctc-routed, netiucv,
            netiucv-routed, claw, claw-routed
            where client and server are processes outside the guests (IUCV):
            hipersockets-iucv, hipersockets-routed-iucv, vctc-iucv, vctc-routed-iucv,
            ctc-iucv, ctc-routed-iucv, netiucv-iucv, netiucv-routed-iucv, claw-iucv,
            claw-routed-iucv
            through a switch:
            guestlan-hipers, guestlan-hipers-routed, guestlan-qdio, guestlan-qdio-routed, vswitch,
            vswitch-routed, guestlan-hipers-iucv, guestlan-hipers-routed-iucv, guestlan-qdio-iucv,
            guestlan-qdio-routed-iucv, vswitch-iucv, vswitch-routed-iucv, lcs, lcs-routed, lcs-iucv,
            lcs-routed-iucv
            through OSA-Express adapters, whose wires are modelled:
            qdio-1000base-t, qdio-1000base-t-routed, qdio-1gbe, qdio-1gbe-routed, qdio-10gbe,
            qdio-10gbe-routed, qdio-1000base-t-iucv, qdio-1000base-t-routed-iucv, qdio-1gbe-iucv,
            qdio-1gbe-routed-iucv, qdio-10gbe-iucv, qdio-10gbe-routed-iucv
            through a switch, where client and server (-netns), or only the server (-mixed), use the
            kernel's stack:
            vswitch-netns, vswitch-routed-netns, vswitch-mixed, vswitch-routed-mixed
Workloads:  rr-1-1, rr-200-1000, rr-200-32k, crr-64-8k, strg-20m, strp-20m, strb-20m, udp-strg-1400,
            Other sizes: write rr:REQUEST/RESPONSE in bytes, such as rr:200/32k (k: 1,024;
            m: 1,024 k; g: 1,024 m). You can replace rr by crr, strg, strp, strb or udp-rr.
            UDP streams: write udp-strg:BYTES, where BYTES is the size of a datagram. With
            udp-strg:BYTES@RATE, each pair sends at RATE, such as 50MB/s.
            Other names: rr-website and rr-database (rr-200-32k), crr-website and crr-database
            (crr-64-8k)
            Latency under load: rr-1-1+4strg is rr-1-1 while 4 streams use the same path.
            rr: requests and responses on one connection; crr: a new connection for each request;
            strg: stream from server to client; strp: from client to server; strb: both directions
Levels:     plain, aa, bigtcp, gro-on, gro-off, reno, cubic, bbr, mtu-1500, mtu-8992,
            nft-100-rules, conntrack, netem, fq, bbr-fq, io-uring, threaded-napi,
            420, 430, frame-16k, frame-24k, frame-40k, frame-64k, buffers-16, buffers-128,
            osa-buffers-16, osa-buffers-128, packets-1492, packets-8992, window-16k, window-32k,
            window-64k, window-128k, window-large, backlog-1000, backlog-2500, beside-queue-2,
            beside-queue-0, own-queue-0, vmesa-2.4.0, zvm-3.1.0 (only for siga's own networks), link-200m, link-400m (only for commands),
            or a TOML file, or a file with nft rules (.nft).
            With a modelled link (only in plans): link:SETTINGS or LEVEL@link:SETTINGS
            With another build of siga (only in plans): build:BUILD or LEVEL@build:BUILD
Places:     local, netns:NAME (a network namespace), pid:PID (a container), ssh:[USER@]HOST
            (for --client, --server and --on)
Plans:      default, ablation, backlog, buffers, buffers-osa, checksums, firewall, frames, guests,
            hop, linux2009, mtu, mtu-by-size, packing, paths, priority-queues, vctc-copy, windows,
            zvm430,
            for commands: compilers, compressors, disk, fileserver, java, jmh, oltp, oltp-exec,
            programs, telco, vctc,
            or a TOML file

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
  siga run --path vswitch --mtu 1500 --link off --link rate=1gbit,latency=500us,loss=0.1%
  siga run hop
  siga run --path hipersockets-routed --build this --build old=../old/target/release/siga
  siga run --path vswitch --workload rr-1-1 --build git:HEAD~10 --checkout .
  siga run --firewall office.nft
  siga run --command 'gzip -9 -c FILE'
  siga run --command 'gzip -c FILE' --level-args -1 --level-args -9
  siga run --command 'sort FILE' --level-env LC_ALL=C --level-env LC_ALL=C.UTF-8
  siga run --path hipersockets-routed-iucv --mtu 1500 --level 420,430 --layout zvm
  siga run zvm430 --table 1-4 --layout zvm
  siga run zvm430 --run-id 420hss1,311hss1 --layout zvm
  siga run --topology topologies/figure-1.toml --client tcpip1 --server tcpip3 --workload rr-200-1000
  siga run --client local --server ssh:host --server-address 192.0.2.7 --port 5001
  siga run compilers --on ssh:old-host,ssh:new-host"
);

/// Shown below the options of `plan`.
pub(crate) const PLAN_HELP: &str = concat!(
    names!(),
    "
Examples:
  siga plan                                   list the cells of the default plan
  siga plan paths --clients 1,10,100          list the cells of the plan paths for three numbers of pairs
  siga plan mtu --trials 12                   show how long twelve rounds of the plan mtu take"
);

/// The axes and settings of a plan.
#[derive(Debug, PartialEq, Args)]
pub(crate) struct Axes {
    /// Name of a shipped plan, or path of a TOML file.
    #[arg(default_value = "default")]
    pub(crate) plan: String,
    /// Measure a command instead of a plan: a program with its arguments, such as 'zstd -3 -c FILE'. siga executes
    /// the command repeatedly, without a shell. Default: measure the workloads in the plan.
    #[arg(long, value_name = "LINE", conflicts_with_all = ["plan", "path", "workload", "client"])]
    command: Option<String>,
    /// Execute the command of --command in a shell (`sh -c`).
    #[arg(long, requires = "command")]
    shell: bool,
    /// Limit the duration of one execution of the command, in seconds. Default: 600.
    #[arg(long, value_name = "S", requires = "command")]
    time_limit: Option<f64>,
    /// Compare values of an environment variable. Each use of this option adds a level that sets the variable for
    /// the command. siga compares each added level with the first added level. If you add only one level, siga
    /// compares it with the unchanged command (level plain). Default: the levels in --level or in the plan.
    #[arg(long, conflicts_with_all = ["level", "firewall"], value_name = "NAME=VALUE")]
    level_env: Vec<String>,
    /// Add a level that executes the command with these arguments, such as '-O3 -g'. In the command, the arguments
    /// replace the word {arguments}. If this word is not in the command, siga appends the arguments. Default: none.
    #[arg(long, conflicts_with_all = ["level", "firewall", "level_env"], allow_hyphen_values = true, value_name = "WORDS")]
    level_args: Vec<String>,
    /// Add a level that replaces the program (the first word of the command), for example by another build.
    /// Default: none.
    #[arg(long, conflicts_with_all = ["level", "firewall", "level_env", "level_args"], value_name = "PROGRAM")]
    level_program: Vec<String>,
    /// Add a level that executes the command only on these CPUs, such as 0 or 0-3,8. Default: none.
    #[arg(long, conflicts_with_all = ["level", "firewall", "level_env", "level_args", "level_program"], value_name = "CPUS")]
    level_cpus: Vec<String>,
    /// Set the network paths that siga builds and measures. Default: the paths in the plan.
    #[arg(long, value_delimiter = ',', value_name = "PATH,…")]
    path: Option<Vec<String>>,
    /// Set the workloads. Default: the workloads in the plan.
    #[arg(long, value_delimiter = ',', value_name = "WORKLOAD,…")]
    workload: Option<Vec<String>>,
    /// Set the number of client-server pairs, from 1 to 10,000. siga measures each number in the list. Default: the
    /// numbers in the plan.
    #[arg(long, value_delimiter = ',', value_name = "N,…")]
    clients: Option<Vec<u32>>,
    /// Set the MTUs in bytes. Default: the MTUs in the plan, otherwise the default MTU of each path.
    #[arg(long, value_delimiter = ',', value_name = "BYTES,…")]
    mtu: Option<Vec<u32>>,
    /// Set the levels to compare. A level is a named set of settings. siga compares each level with the first level
    /// in the list. Default: the levels in the plan.
    #[arg(long, value_delimiter = ',', value_name = "LEVEL,…")]
    level: Option<Vec<String>>,
    /// Put a modelled link between the server and its network: SETTINGS such as rate=1gbit,latency=500us,loss=0.1%
    /// apply to each direction. Needs a path of siga's own networks that ends at a virtual CTC or a switch, such as
    /// vctc or vswitch. To compare links, use this option several times; `off` means no link. Default: no link.
    #[arg(long, conflicts_with_all = ["command", "client", "firewall"], value_name = "SETTINGS")]
    link: Vec<String>,
    /// Compare builds of siga: guests, routers, switches and workload drivers come from this program file, and {siga} in
    /// commands stands for it. Use this option several times to compare several builds; `this` is the running program,
    /// and git:REVISION is a revision of --checkout. With NAME=, the build has this name in tables. Default: this
    /// program.
    #[arg(long, conflicts_with = "firewall", value_name = "[NAME=]BUILD")]
    build: Vec<String>,
    /// Compare each of these packet filters with no packet filter. Each file contains rules in nft's syntax. siga
    /// loads the rules only into the router's network namespace. Without --path, siga measures the path
    /// veth-routed. Default: no packet filter.
    #[arg(long, value_delimiter = ',', conflicts_with = "level", value_name = "FILE.nft,…")]
    firewall: Option<Vec<String>>,
    /// Set the number of trials of each cell. A cell is one combination of path, workload, MTU, pairs and level.
    /// Default: siga repeats trials until each compared ratio has a 95% interval of at most ±1%, at most 30 times and within
    /// --budget.
    #[arg(long, value_name = "N")]
    trials: Option<u32>,
    /// Set the duration of a trial in seconds, without its warm-up. Default: the value in the plan, otherwise 1.
    #[arg(long, value_name = "S")]
    seconds: Option<f64>,
    /// Set the duration of the warm-up before each trial, in seconds. siga does not measure the warm-up. Default:
    /// the value in the plan, otherwise 0.25.
    #[arg(long, value_name = "S")]
    warm_up: Option<f64>,
    /// Limit the duration of the whole run, in seconds. siga always completes the first round, which has one trial
    /// of each cell. Default: the limit in the plan. With --trials, or with options
    /// that set levels to compare, the default is no limit.
    #[arg(long, value_name = "S")]
    budget: Option<f64>,
    /// Use IPv6 addresses on all paths. Without this option, siga uses IPv4.
    #[arg(long)]
    ipv6: bool,
    /// On each side, use one process for each client-server pair (at most 1,000 pairs). On siga's own networks, this
    /// needs a path on which client and server are applications of guests (-iucv) or use namespaces (-netns). Without
    /// this option, one process on each side serves all pairs.
    #[arg(long)]
    processes: bool,
    /// Set how client and server wait for data. block: sleep at once. poll: never sleep. adaptive: poll while
    /// traffic is recent, then sleep (only on siga's own networks). Default: the value in the plan, otherwise
    /// block.
    #[arg(long, value_parser = wait, value_name = "block|adaptive|poll")]
    wait: Option<Waiting>,
    /// Set which side closes a connection first in CRR workloads (connect, request, response, close). Default: the
    /// value in the plan, otherwise server.
    #[arg(long, value_parser = close, value_name = "server|client")]
    close: Option<Close>,
    /// Set the size in bytes of one write call and of the receive buffer, such as 64k. Default: the value in the
    /// plan, otherwise 128k.
    #[arg(long, value_name = "SIZE")]
    write: Option<String>,
    /// Start transactions at planned times (open loop). The value is the number of transactions per second of all
    /// pairs together. Default: each pair sends its next request when it has received the response (closed loop).
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<f64>,
    /// Also measure latency at lower loads. siga first measures the rate of the closed loop. Then siga starts
    /// transactions at planned times (open loop), at these percentages of the closed loop's rate, such as
    /// 10%,50%,90%. Latency counts from the planned start of a transaction. Default: no lower loads.
    #[arg(long, value_delimiter = ',', conflicts_with = "rate", value_name = "PERCENT,…")]
    load: Option<Vec<Offered>>,
    /// Run the client only on these CPUs, such as 0 or 0-3,8. Default: the CPUs in the plan, otherwise all CPUs.
    #[arg(long, value_name = "CPUS")]
    client_cpus: Option<String>,
    /// Run the server only on these CPUs, such as 0 or 0-3,8. Default: the CPUs in the plan, otherwise all CPUs.
    #[arg(long, value_name = "CPUS")]
    server_cpus: Option<String>,
    /// Run the routers of siga's own networks only on these CPUs. Default: the CPUs in the plan, otherwise all CPUs.
    #[arg(long, value_name = "CPUS")]
    router_cpus: Option<String>,
    /// Run the other processes of siga's own networks only on these CPUs: switches, the control program, and guests that
    /// are not the client or the server itself. Default: the CPUs in the plan, otherwise all CPUs.
    #[arg(long, value_name = "CPUS")]
    guest_cpus: Option<String>,
    /// Limit the memory of siga and all processes of the run together, such as 2g. The kernel ends a process that
    /// needs more. Needs root, or a control group that your user owns. Default: the limit in the plan, otherwise no
    /// limit.
    #[arg(long, value_name = "SIZE")]
    memory_limit: Option<String>,
    /// Set how siga divides CPU time between client, router and server: profile, subtract or tick. Default: the
    /// method in the plan, otherwise the most accurate method that the host supports.
    #[arg(long, value_parser = method, value_name = "METHOD")]
    accounting: Option<AccountingMethod>,
    /// Measure between two guests of the network in this topology file. --client and --server name the guests. siga
    /// starts the network for each trial, and finds the routers and switches in between. Default: no topology.
    #[arg(long, requires = "client", conflicts_with_all = ["path", "network"], value_name = "FILE")]
    topology: Option<String>,
    /// Measure between two guests of this network, which is up (`siga net up`). --client and --server name the guests.
    /// Default: no network.
    #[arg(long, requires = "client", conflicts_with = "path", value_name = "NAME")]
    network: Option<String>,
    /// Run the client in an existing place: this host, another host, a network namespace or a container. With --topology
    /// or --network, name the guest of the client. The option --client needs --server, and replaces --path. Default:
    /// siga builds the paths itself.
    #[arg(long, requires = "server", conflicts_with = "path", value_name = "PLACE")]
    client: Option<String>,
    /// Run the server in an existing place: this host, another host, a network namespace or a container. With --topology
    /// or --network, name the guest of the server. The option --server needs --client, and replaces --path. Default:
    /// siga builds the paths itself.
    #[arg(long, requires = "client", conflicts_with = "path", value_name = "PLACE")]
    server: Option<String>,
    /// Set the address to which the client connects. Default: an address of the server's place to which the client
    /// has a route.
    #[arg(long, value_name = "ADDRESS")]
    server_address: Option<IpAddr>,
    /// Set the port on which the server listens. Default: a free port.
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Set the TCP congestion control algorithm for a measurement with --client and --server. Default: the
    /// algorithm of the host.
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Add a known cost of US microseconds, to check that siga measures this cost correctly. client=US, server=US:
    /// CPU time of the client or the server for each transaction. router=US: CPU time of the router for each packet
    /// that it receives. profiler=US: like router=US, but only while the profiler runs. delay=US: delay of the
    /// server before each response. Default: no added cost.
    #[arg(long, value_delimiter = ',', value_name = "WHERE=US,…")]
    plant: Option<Vec<String>>,
    /// Run one round of short trials, to check that everything works. siga then gives no verdicts.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Set the seed for the random order of trials. Default: the current time.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Measure only the cells that these run identifiers name, such as 420hss1 or 311hss1. They have the form of z/VM's
    /// report on levels 420 and 430; the number of the trial at the end may be left out. Default: all cells of the plan.
    #[arg(long, value_delimiter = ',', value_name = "RUNID,…", value_parser = crate::parse::<RunId>)]
    run_id: Vec<RunId>,
    /// Measure only these tables of the plan: names or ranges of numbers, such as 9 or 1-4,16. `siga plan` lists the tables.
    /// Default: all tables of the plan.
    #[arg(long, value_delimiter = ',', conflicts_with_all = ["command", "path", "client", "workload", "mtu", "firewall"], value_name = "TABLE,…")]
    table: Vec<String>,
}

impl Axes {
    /// Returns the plan, with the values of all given options.
    pub(crate) fn plan(&self) -> Result<Plan> {
        let mut plan = match &self.command {
            Some(line) => self.of_command(line)?,
            None => Plan::load(&self.plan)?,
        };
        self.drop_findings(&mut plan);
        self.groups(&mut plan)?;
        if let (Some(client), Some(server)) = (&self.client, &self.server) {
            plan.paths = vec![match (&self.topology, &self.network) {
                (Some(file), _) => format!("topology:{file}:{client}>{server}"),
                (None, Some(network)) => format!("network:{network}:{client}>{server}"),
                (None, None) => format!("{client}>{server}"),
            }];
        }
        set(&mut plan.paths, self.path.as_ref());
        set(&mut plan.workloads, self.workload.as_ref());
        if self.workload.is_some() {
            // The plan may have further commands, which are not measured now.
            plan.workload.retain(|name, _| plan.workloads.contains(name));
        }
        set(&mut plan.clients, self.clients.as_ref());
        set(&mut plan.mtus, self.mtu.as_ref());
        set(&mut plan.levels, self.level.as_ref());
        self.firewall(&mut plan)?;
        if !self.link.is_empty() {
            plan.over_links(&self.link)?;
        }
        self.levels_of_command(&mut plan);
        if !self.build.is_empty() {
            plan.over_builds(&self.build)?;
        }
        set(&mut plan.seconds, self.seconds.as_ref());
        set(&mut plan.warm_up_seconds, self.warm_up.as_ref());
        set(&mut plan.load, self.load.as_ref());
        set(&mut plan.wait, self.wait.as_ref());
        set(&mut plan.close, self.close.as_ref());
        set(&mut plan.write, self.write.as_ref());
        set(&mut plan.reach.port, self.port.as_ref());
        plan.ipv6 |= self.ipv6;
        plan.processes |= self.processes;
        self.limits(&mut plan);
        plan.rate = self.rate.or(plan.rate);
        plan.accounting = self.accounting.or(plan.accounting);
        plan.reach.server_address = self.server_address.or(plan.reach.server_address);
        plan.reach.congestion = self.congestion.clone().or(plan.reach.congestion);
        plan.seed = self.seed.or(plan.seed);
        let compares_levels = self.level.as_ref().is_some_and(|levels| levels.len() > 1)
            || self.link.len() > 1
            || !self.build.is_empty()
            || self.firewall.is_some()
            || !self.short_levels().is_empty();
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
        self.keep_cells(&mut plan)?;
        for notice in plan.notices() {
            crate::note(&format!("note: {notice}"));
        }
        Ok(plan)
    }

    /// Keeps the tables that `--table` names. Drops tables and single cells if an option replaces an axis.
    fn groups(&self, plan: &mut Plan) -> Result<()> {
        let own_cells = self.path.is_some() || self.client.is_some() || self.workload.is_some();
        if own_cells {
            // Single cells (`include`, `exclude`) belong to the plan's own axes.
            plan.include.clear();
            plan.exclude.clear();
        }
        if own_cells || self.mtu.is_some() {
            let paths = if self.client.is_some() { Some(&[][..]) } else { self.path.as_deref() };
            plan.drop_tables(paths, self.workload.as_deref());
        }
        if self.table.is_empty() {
            return Ok(());
        }
        plan.keep_tables(&self.table).map_err(|error| error.at("--table"))
    }

    /// Sets the CPUs and the memory that processes may use.
    fn limits(&self, plan: &mut Plan) {
        for (target, given) in [
            (&mut plan.client_cpus, &self.client_cpus),
            (&mut plan.server_cpus, &self.server_cpus),
            (&mut plan.router_cpus, &self.router_cpus),
            (&mut plan.guest_cpus, &self.guest_cpus),
            (&mut plan.memory_limit, &self.memory_limit),
        ] {
            if given.is_some() {
                target.clone_from(given);
            }
        }
    }

    /// Drops the findings of a plan if an option replaces the levels, workloads, numbers of pairs, paths or MTUs that they are about.
    fn drop_findings(&self, plan: &mut Plan) {
        let some_cells = !self.run_id.is_empty() || !self.table.is_empty();
        if some_cells || self.workload.is_some() || self.clients.is_some() || self.level.is_some() {
            plan.finding.clear();
        }
        let paths = self.path.is_some() || [&self.topology, &self.network, &self.client].iter().any(|it| it.is_some());
        plan.finding
            .retain(|finding| (finding.paths.is_empty() || !paths) && (finding.mtus.is_empty() || self.mtu.is_none()));
    }

    /// Keeps only the cells that run identifiers name, if there are any.
    fn keep_cells(&self, plan: &mut Plan) -> Result<()> {
        if self.run_id.is_empty() {
            return Ok(());
        }
        let matrix = plan.matrix()?;
        plan.keep(&self.run_id, &matrix)
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
            question: format!("How long does {name} take, and how much CPU time does it use?"),
            paths: vec![HOST.to_owned()],
            workloads: vec![name.clone()],
            workload: [(name, command)].into(),
            seconds: COMMAND_SECONDS,
            warm_up_seconds: 0.0,
            ..Plan::default()
        })
    }

    /// Returns the names of the levels that options describe.
    fn short_levels(&self) -> Vec<String> {
        let all = [
            (Level::ENVIRONMENT, &self.level_env),
            (CommandLevel::ARGUMENTS, &self.level_args),
            (CommandLevel::PROGRAM, &self.level_program),
            (CommandLevel::CPUS, &self.level_cpus),
        ];
        all.iter().flat_map(|(prefix, texts)| texts.iter().map(move |text| format!("{prefix}{text}"))).collect()
    }

    /// Replaces the levels by those that options describe.
    fn levels_of_command(&self, plan: &mut Plan) {
        let levels = self.short_levels();
        match levels.len() {
            0 => {}
            1 => plan.levels = ["plain".to_owned()].into_iter().chain(levels).collect(),
            _ => plan.levels = levels,
        }
    }

    /// Adds the levels `plain` and one for each packet filter.
    fn firewall(&self, plan: &mut Plan) -> Result<()> {
        let Some(files) = &self.firewall else { return Ok(()) };
        if let Some(file) = files.iter().find(|file| !file.ends_with(".nft")) {
            return Err(Error::usage(format!("--firewall {file}: the name of a packet filter file must end in .nft"))
                .hint("use a file with rules in nft's syntax, or use --level with a level of siga such as conntrack"));
        }
        plan.levels = ["plain".to_owned()].into_iter().chain(files.iter().cloned()).collect();
        plan.question = "How much does the packet filter cost, and in which component?".to_owned();
        if self.path.is_none() && self.client.is_none() {
            let paths = vec!["veth-routed".to_owned()];
            plan.drop_tables(Some(&paths), None);
            plan.paths = paths;
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

fn set<T: Clone>(target: &mut T, given: Option<&T>) {
    if let Some(given) = given {
        target.clone_from(given);
    }
}

fn plant(plan: &mut Plan, text: &str) -> Result<()> {
    let bad = || {
        Error::usage(format!("`{text}` is not a cost that siga can add"))
            .hint("--plant accepts client=US, server=US, router=US, profiler=US and delay=US (US: microseconds)")
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
