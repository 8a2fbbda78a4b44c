//! Names of the kernel's build options, boot options and sysctls that affect networks and scheduling. An environment records no
//! other options and sysctls.
//!
//! An entry that ends in `*` matches every name with that beginning.

/// Kernel build options that affect scheduling, accounting and networks.
pub const CONFIG_OPTIONS: &[&str] = &[
    "CONFIG_BONDING",
    "CONFIG_BPF_JIT*",
    "CONFIG_BPF_STREAM_PARSER",
    "CONFIG_BRIDGE",
    "CONFIG_BRIDGE_NETFILTER",
    "CONFIG_DEFAULT_NET_SCH",
    "CONFIG_DEFAULT_TCP_CONG",
    "CONFIG_HZ*",
    "CONFIG_IRQ_TIME_ACCOUNTING",
    "CONFIG_IPVLAN",
    "CONFIG_MACVLAN",
    "CONFIG_NETFILTER",
    "CONFIG_NET_NS",
    "CONFIG_NET_RX_BUSY_POLL",
    "CONFIG_NET_SCH_*",
    "CONFIG_NF_CONNTRACK",
    "CONFIG_NF_TABLES",
    "CONFIG_NO_HZ*",
    "CONFIG_PREEMPT*",
    "CONFIG_RPS",
    "CONFIG_SCHED_AUTOGROUP",
    "CONFIG_TCP_CONG_*",
    "CONFIG_TICK_CPU_ACCOUNTING",
    "CONFIG_TUN",
    "CONFIG_USER_NS",
    "CONFIG_VETH",
    "CONFIG_VIRT_CPU_ACCOUNTING_GEN",
    "CONFIG_VLAN_8021Q",
    "CONFIG_XPS",
];

/// Kernel debug options that slow down a network path noticeably.
pub const DEBUG_OPTIONS: &[&str] = &[
    "CONFIG_DEBUG_ATOMIC_SLEEP",
    "CONFIG_DEBUG_KMEMLEAK",
    "CONFIG_DEBUG_LOCK_ALLOC",
    "CONFIG_DEBUG_MUTEXES",
    "CONFIG_DEBUG_NET",
    "CONFIG_DEBUG_OBJECTS",
    "CONFIG_DEBUG_PAGEALLOC_ENABLE_DEFAULT",
    "CONFIG_DEBUG_PREEMPT",
    "CONFIG_DEBUG_SPINLOCK",
    "CONFIG_KASAN",
    "CONFIG_KCOV",
    "CONFIG_KCSAN",
    "CONFIG_KMSAN",
    "CONFIG_LOCKDEP",
    "CONFIG_LOCK_STAT",
    "CONFIG_PROVE_LOCKING",
    "CONFIG_PROVE_RCU",
    "CONFIG_SLUB_DEBUG_ON",
];

/// Options on the kernel's command line that affect scheduling, idling and mitigations.
pub const BOOT_OPTIONS: &[&str] = &[
    "amd_pstate",
    "clocksource",
    "cpuidle*",
    "haltpoll.*",
    "idle",
    "intel_idle.max_cstate",
    "intel_pstate",
    "irqaffinity",
    "isolcpus",
    "kthread_cpus",
    "maxcpus",
    "mitigations",
    "nohz",
    "nohz_full",
    "nosmt",
    "preempt",
    "processor.max_cstate",
    "rcu_nocbs",
    "skew_tick",
    "threadirqs",
    "tsc",
];

/// Kernel settings (sysctls) that affect networks and scheduling.
pub const SYSCTLS: &[&str] = &[
    "kernel.apparmor_restrict_unprivileged_userns",
    "kernel.bpf_stats_enabled",
    "kernel.nmi_watchdog",
    "kernel.numa_balancing",
    "kernel.perf_event_paranoid",
    "kernel.sched_*",
    "kernel.timer_migration",
    "kernel.unprivileged_bpf_disabled",
    "kernel.unprivileged_userns_clone",
    "net.bridge.bridge-nf-call-iptables",
    "net.core.bpf_jit_enable",
    "net.core.bpf_jit_harden",
    "net.core.busy_poll",
    "net.core.busy_read",
    "net.core.default_qdisc",
    "net.core.dev_weight",
    "net.core.gro_normal_batch",
    "net.core.high_order_alloc_disable",
    "net.core.max_skb_frags",
    "net.core.netdev_budget",
    "net.core.netdev_budget_usecs",
    "net.core.netdev_max_backlog",
    "net.core.netdev_tstamp_prequeue",
    "net.core.optmem_max",
    "net.core.rmem_default",
    "net.core.rmem_max",
    "net.core.rps_sock_flow_entries",
    "net.core.skb_defer_max",
    "net.core.somaxconn",
    "net.core.wmem_default",
    "net.core.wmem_max",
    "net.ipv4.ip_early_demux",
    "net.ipv4.ip_forward",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_adv_win_scale",
    "net.ipv4.tcp_allowed_congestion_control",
    "net.ipv4.tcp_autocorking",
    "net.ipv4.tcp_available_congestion_control",
    "net.ipv4.tcp_backlog_ack_defer",
    "net.ipv4.tcp_comp_sack_delay_ns",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_early_demux",
    "net.ipv4.tcp_early_retrans",
    "net.ipv4.tcp_ecn",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_limit_output_bytes",
    "net.ipv4.tcp_max_syn_backlog",
    "net.ipv4.tcp_max_tw_buckets",
    "net.ipv4.tcp_mem",
    "net.ipv4.tcp_min_tso_segs",
    "net.ipv4.tcp_moderate_rcvbuf",
    "net.ipv4.tcp_mtu_probing",
    "net.ipv4.tcp_no_metrics_save",
    "net.ipv4.tcp_notsent_lowat",
    "net.ipv4.tcp_pacing_ca_ratio",
    "net.ipv4.tcp_pacing_ss_ratio",
    "net.ipv4.tcp_recovery",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_sack",
    "net.ipv4.tcp_shrink_window",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_tso_win_divisor",
    "net.ipv4.tcp_tw_reuse",
    "net.ipv4.tcp_window_scaling",
    "net.ipv4.tcp_wmem",
    "net.netfilter.nf_conntrack_buckets",
    "net.netfilter.nf_conntrack_max",
    "user.max_net_namespaces",
    "user.max_user_namespaces",
];

/// Returns true if `name` matches an entry of `list`. An entry that ends in `*` matches every name with that beginning.
pub fn listed(list: &[&str], name: &str) -> bool {
    list.iter().any(|entry| match entry.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == *entry,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_rest_and_only_at_the_end() {
        assert!(listed(&["a.*", "b"], "a.c") && listed(&["b"], "b") && listed(&["a.*"], "a."));
        assert!(!listed(&["b"], "bb") && !listed(&["a.*"], "a") && !listed(&[], ""));
    }
}
