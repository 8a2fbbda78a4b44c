//! Decides whether machines run under KVM. `/dev/kvm` may exist and hang, so only a boot shows whether KVM works.

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use super::image::Image;
use super::machine;
use super::qemu::Accelerator;

/// The longest time that a boot under KVM may take; one second is usual.
const PROBE_TIME_MAX: Duration = Duration::from_secs(5);

/// Returns the accelerator for this host. The answer of the probe is kept in `cache` until the host boots again.
pub(crate) fn choose(image: &Image, cache: &Path) -> Result<Accelerator, String> {
    if File::options().read(true).write(true).open("/dev/kvm").is_err() {
        return Ok(Accelerator::Tcg);
    }
    let path = cache.join("accelerator");
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    if let Some(known) = fs::read_to_string(&path).ok().and_then(|text| parse(&text, &boot)) {
        return Ok(known);
    }
    eprintln!("vm: checking whether KVM works, for at most {} s", PROBE_TIME_MAX.as_secs());
    let works = machine::probe(image, Accelerator::Kvm, PROBE_TIME_MAX)?;
    let accelerator = if works { Accelerator::Kvm } else { Accelerator::Tcg };
    fs::write(&path, text(accelerator, &boot)).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(accelerator)
}

fn text(accelerator: Accelerator, boot: &str) -> String {
    let word = match accelerator {
        Accelerator::Kvm => "kvm",
        Accelerator::Tcg => "tcg",
    };
    format!("{word} {boot}")
}

/// Returns the kept answer if it was found since the host's last boot.
fn parse(text: &str, boot: &str) -> Option<Accelerator> {
    match text.split_once(' ')? {
        ("kvm", known) if known == boot => Some(Accelerator::Kvm),
        ("tcg", known) if known == boot => Some(Accelerator::Tcg),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_of_a_probe_holds_until_the_host_boots_again() {
        for accelerator in [Accelerator::Kvm, Accelerator::Tcg] {
            assert_eq!(parse(&text(accelerator, "id-1\n"), "id-1\n"), Some(accelerator));
            assert_eq!(parse(&text(accelerator, "id-1\n"), "id-2\n"), None);
        }
        assert_eq!(parse("", "id-1\n"), None);
    }
}
