//! The resources that a run uses in this process, and the machine it ran on.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Processor time and memory of this process.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Usage {
    /// Seconds of processor time, in user and kernel mode, of all threads.
    pub cpu_s: f64,
    /// Peak resident memory so far, in bytes.
    pub rss_bytes: u64,
}

impl Usage {
    /// The usage since the process began.
    pub fn now() -> Usage {
        // SAFETY: all zeroes is a valid value of this plain structure.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: the structure outlives the call. It cannot fail with these arguments.
        unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
        let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
        Usage {
            cpu_s: seconds(usage.ru_utime) + seconds(usage.ru_stime),
            rss_bytes: (usage.ru_maxrss as u64) * 1024,
        }
    }
}

/// A machine, as far as results depend on it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Machine {
    /// Name of the processor.
    pub cpu: String,
    /// Processors that this process may use.
    pub cores: u64,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Kernel and its version.
    pub kernel: String,
}

impl Machine {
    /// Describes this machine. What the kernel does not report is left empty or 0.
    pub fn this() -> Machine {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name));
            line.and_then(|l| l.split_once(':')).map_or(String::new(), |(_, v)| v.trim().to_owned())
        };
        let cpus = read("/proc/cpuinfo");
        let cpu = ["model name", "Model", "cpu"].iter().map(|name| field(&cpus, name));
        let memory = field(&read("/proc/meminfo"), "MemTotal");
        let kib: u64 = memory.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0);
        Machine {
            cpu: cpu.into_iter().find(|name| !name.is_empty()).unwrap_or_default(),
            cores: std::thread::available_parallelism().map_or(0, |n| n.get() as u64),
            memory_bytes: kib * 1024,
            kernel: format!(
                "{} {}",
                read("/proc/sys/kernel/ostype").trim(),
                read("/proc/sys/kernel/osrelease").trim()
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_costs_processor_time_and_this_machine_has_memory_and_a_kernel() {
        let before = Usage::now();
        let mut x = 1u64;
        while Usage::now().cpu_s <= before.cpu_s {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
        assert!(before.rss_bytes > 0);
        let machine = Machine::this();
        assert!(machine.cores > 0 && machine.memory_bytes > 0);
        assert!(machine.kernel.len() > 1);
    }
}
