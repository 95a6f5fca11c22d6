//! Device models by the names that the configuration file uses.

use forebay_block::Nanos;
use forebay_config::{Config, Distribution, Shape, Size, TimeSpan};
use forebay_model::{Disk, Latency, Profile};

/// Stripe size of a shape with several disks, in bytes.
const STRIPE_BYTES: u64 = 256 << 10;

/// The device that `name` means in `config`: a `[shape.NAME]`, else a device that
/// `forebay-model` knows.
pub fn device_profile(config: &Config, name: &str) -> Option<Profile> {
    match config.shape.get(name) {
        Some(shape) => profile(shape),
        None => Profile::named(name),
    }
}

/// The device that a shape describes: its base device, with the values of the shape in place of
/// those of the device. `None` if the base device does not exist.
///
/// A shape without a base device performs one operation at a time, and its syncs and transfers take
/// no time unless it says otherwise. If it seeks or rotates, it is a disk, or as many disks as its
/// parallelism, striped by 256 KiB; its shortest seek takes no time.
pub fn profile(shape: &Shape) -> Option<Profile> {
    let from = match &shape.device {
        Some(name) => Profile::named(name)?,
        None => Profile { parallelism: 1, ..Profile::INSTANT },
    };
    let latency = |own: Option<TimeSpan>, theirs: &Latency| match (shape.distribution, own) {
        (Some(_), _) => scattered(shape, own.map_or(theirs.mean(), TimeSpan::nanos)),
        (None, None) => theirs.clone(),
        (None, Some(mean)) => match theirs {
            Latency::Lognormal { sigma, .. } => {
                Latency::Lognormal { mean: mean.nanos(), sigma: *sigma }
            }
            Latency::Fixed(_) | Latency::Percentiles(_) => Latency::Fixed(mean.nanos()),
        },
    };
    let sync = match shape.distribution {
        // The percentiles describe reads and writes, not syncs.
        Some(Distribution::Percentiles) => {
            Latency::Fixed(shape.sync_latency.map_or(from.sync.mean(), TimeSpan::nanos))
        }
        _ => latency(shape.sync_latency, &from.sync),
    };
    Some(Profile {
        read: latency(shape.read_latency, &from.read),
        write: latency(shape.write_latency, &from.write),
        sync,
        read_bytes_per_s: shape.bandwidth.map_or(from.read_bytes_per_s, Size::bytes),
        write_bytes_per_s: shape.bandwidth.map_or(from.write_bytes_per_s, Size::bytes),
        write_burst_bytes: from.write_burst_bytes,
        operations_per_s: shape.iops.unwrap_or(from.operations_per_s),
        parallelism: shape.parallelism.unwrap_or(from.parallelism),
        disk: disk(shape, &from),
    })
}

/// Latencies around `mean`, with the distribution of the shape.
fn scattered(shape: &Shape, mean: Nanos) -> Latency {
    match shape.distribution {
        None | Some(Distribution::Fixed) => Latency::Fixed(mean),
        Some(Distribution::Lognormal) => Latency::Lognormal { mean, sigma: shape.sigma },
        Some(Distribution::Percentiles) => {
            Latency::Percentiles(shape.percentiles.iter().map(|&(p, t)| (p, t.nanos())).collect())
        }
    }
}

/// The disks of the shape, if it seeks or rotates.
fn disk(shape: &Shape, from: &Profile) -> Option<Disk> {
    let none = Disk {
        seek_min: Nanos(0),
        seek_max: Nanos(0),
        rotation: Nanos(0),
        spindles: from.parallelism.max(1),
        stripe_bytes: STRIPE_BYTES,
    };
    let theirs = from.disk.unwrap_or(none);
    let seek_max = shape.seek_max.map_or(theirs.seek_max, TimeSpan::nanos);
    let rotation = shape.rotation.map_or(theirs.rotation, TimeSpan::nanos);
    let moves = seek_max > Nanos(0) || rotation > Nanos(0);
    moves.then(|| Disk {
        seek_min: theirs.seek_min.min(seek_max),
        seek_max,
        rotation,
        spindles: shape.parallelism.unwrap_or(theirs.spindles),
        stripe_bytes: theirs.stripe_bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_means_a_shape_of_the_file_then_a_device_of_the_model() {
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

    /// The only shape of a configuration that has these keys.
    fn shape(keys: &str) -> Profile {
        let config = Config::from_toml(&format!("[shape.x]\n{keys}")).unwrap();
        device_profile(&config, "x").unwrap()
    }

    #[test]
    fn what_a_shape_leaves_unset_is_as_the_device_has_it() {
        for name in Profile::NAMES {
            assert_eq!(
                shape(&format!("device = '{name}'")),
                Profile::named(name).unwrap(),
                "{name}"
            );
        }
        let nothing = Profile { parallelism: 1, ..Profile::INSTANT };
        assert_eq!(shape(""), nothing);
    }

    #[test]
    fn what_a_shape_says_stands_in_the_place_of_the_devices() {
        let san = Profile::named("san").unwrap();
        let mine = shape(
            "device = 'san'\nread_latency = '2ms'\nsync_latency = '7ms'\niops = 100\n\
             bandwidth = '1MB'\nparallelism = 3",
        );
        assert_eq!(mine.read, Latency::Lognormal { mean: Nanos(2_000_000), sigma: 0.8 });
        assert_eq!(mine.sync, Latency::Lognormal { mean: Nanos(7_000_000), sigma: 0.3 });
        assert_eq!(mine.write, san.write);
        assert_eq!((mine.operations_per_s, mine.parallelism), (100, 3));
        assert_eq!((mine.read_bytes_per_s, mine.write_bytes_per_s), (1_000_000, 1_000_000));
        let even = shape("device = 'san'\ndistribution = 'fixed'");
        assert_eq!(even.read, Latency::Fixed(san.read.mean()));
        assert_eq!(even.sync, Latency::Fixed(san.sync.mean()));
        let measured = shape(
            "distribution = 'percentiles'\npercentiles = [[50.0, '1ms'], [99.0, '20ms']]\n\
             sync_latency = '3ms'",
        );
        assert_eq!(measured.sync, Latency::Fixed(Nanos(3_000_000)));
        let half = shape("device = 'hdd-array'\nparallelism = 4\nrotation = '4ms'").disk.unwrap();
        let array = Profile::named("hdd-array").unwrap().disk.unwrap();
        assert_eq!((half.spindles, half.rotation), (4, Nanos(4_000_000)));
        assert_eq!(half.seek_max, array.seek_max);
        assert_eq!(shape("device = 'hdd-7200'\nseek_max = '0s'\nrotation = '0s'").disk, None);
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
