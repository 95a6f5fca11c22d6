//! Device models by the names that the configuration file uses.

use forebay_block::Nanos;
use forebay_config::{Config, Distribution, ShapeModel};
use forebay_model::{Disk, Latency, Profile};

/// Bytes on one disk before the next one's turn, of a shape with several disks.
const STRIPE_BYTES: u64 = 256 << 10;

/// The device that `name` means in `config`: a `[shape.NAME]`, else a device of the catalogue,
/// else one of the typical devices of `forebay-model`.
pub fn device_profile(config: &Config, name: &str) -> Option<Profile> {
    let shaped = config.shape_model(name).map(|shape| profile(&shape));
    shaped.or_else(|| Profile::named(name))
}

/// The device that a shape stands for. A sync takes no longer than the writes before it.
///
/// A shape that seeks or rotates is a disk, or as many of them as it has parallelism, striped by
/// 256 KiB; its shortest seek takes no time.
pub fn profile(shape: &ShapeModel) -> Profile {
    let latency = |mean_ns: f64| match shape.distribution {
        Distribution::Fixed => Latency::Fixed(nanos(mean_ns)),
        Distribution::Lognormal => Latency::Lognormal { mean: nanos(mean_ns), sigma: shape.sigma },
        Distribution::Percentiles => {
            Latency::Percentiles(shape.percentiles.iter().map(|&(p, ns)| (p, nanos(ns))).collect())
        }
    };
    let moves = shape.seek_max_ns > 0.0 || shape.rotation_ns > 0.0;
    Profile {
        read: latency(shape.read_latency_ns),
        write: latency(shape.write_latency_ns),
        sync: Latency::NONE,
        read_bytes_per_s: shape.bandwidth_bytes_per_s,
        write_bytes_per_s: shape.bandwidth_bytes_per_s,
        parallelism: shape.parallelism,
        disk: moves.then(|| Disk {
            seek_min: Nanos(0),
            seek_max: nanos(shape.seek_max_ns),
            rotation: nanos(shape.rotation_ns),
            spindles: shape.parallelism,
            stripe_bytes: STRIPE_BYTES,
        }),
        ..Profile::INSTANT
    }
}

fn nanos(ns: f64) -> Nanos {
    Nanos(ns.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_means_a_shape_of_the_file_then_the_catalogue_then_a_typical_device() {
        let config = Config::from_toml(
            "[shape.FastHDD]\nread_latency = '3ms'\nbandwidth = '100MB'\nparallelism = 2",
        )
        .unwrap();
        let own = device_profile(&config, "FastHDD").unwrap();
        assert_eq!(own.read, Latency::Fixed(Nanos(3_000_000)));
        assert_eq!((own.parallelism, own.write_bytes_per_s), (2, 100_000_000));
        let catalogue = device_profile(&config, "MediumSSD").unwrap();
        assert_eq!(catalogue.write, Latency::Fixed(Nanos(27_770)));
        assert_eq!(device_profile(&config, "san"), Profile::named("san"));
        assert_eq!(device_profile(&config, "floppy"), None);
    }

    #[test]
    fn a_shape_that_seeks_is_a_disk_and_every_shape_makes_sense() {
        let config = Config::from_toml(
            "[shape.disk]\nseek_max = '16ms'\nrotation = '8ms'\n\
             [shape.tail]\ndistribution = 'lognormal'\nread_latency = '1ms'\n\
             [shape.measured]\ndistribution = 'percentiles'\n\
             percentiles = [[50.0, '1ms'], [99.0, '20ms']]",
        )
        .unwrap();
        let disk = device_profile(&config, "disk").unwrap();
        assert_eq!(disk.disk.unwrap().rotation, Nanos(8_000_000));
        for name in ["disk", "tail", "measured"] {
            assert_eq!(device_profile(&config, name).unwrap().check(), Ok(()), "{name}");
        }
    }
}
