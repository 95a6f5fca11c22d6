//! Goal: every error in a configuration is rejected with its key, its line and a solution. Method:
//! one file per mistake, and mutations of a file that uses every section.

use std::path::Path;

use forebay_config::Config;

/// A configuration that uses every section.
const FULL: &str = r#"
[cache]
block_size = "4KiB"
dram = "1GiB"
write_policy = "write-back"
acknowledge = "flash"
partial = "fill"
relation = "exclusive"

[flash]
path = "/dev/nvme0n1p4"
size = "64GiB"
layout = "log"
region_size = "16MiB"
shape = "FastSSD"

[[volume]]
name = "vm1"
backing = "/dev/sdb"
layout = "tail"
read_only = true

[[volume]]
name = "vm2"
backing = "disk.img"
layout = "none"
size = "10GiB"
shape = "array"

[serve]
nbd = "tcp:127.0.0.1:10809"
control = "tcp:127.0.0.1:9100"

[replacement]
policy = "lru"

[admission]
policy = "always"

[flush]
parallel = 64
stamp_every = "1s"

[workers]
shards = 4

[shape.array]
device = "hdd-array"
sync_latency = "2ms"
iops = 5000
distribution = "percentiles"
percentiles = [[50.0, "1ms"], [99.9, "20ms"]]
bandwidth = "180MB"
"#;

#[test]
fn a_file_that_uses_every_section_is_accepted() {
    let config = Config::from_toml(FULL).unwrap();
    assert_eq!(config.volume.len(), 2);
    assert_eq!(config.shape["array"].percentiles.len(), 2);
    config.check_volumes().unwrap();
}

#[test]
fn an_empty_file_is_the_default() {
    assert_eq!(Config::from_toml("").unwrap(), Config::default());
}

#[test]
fn every_file_in_the_documentation_is_accepted() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
    let text = std::fs::read_to_string(path).unwrap();
    let mut files = 0;
    for block in text.split("```toml\n").skip(1) {
        let (file, _) = block.split_once("```").unwrap();
        Config::from_toml(file).unwrap_or_else(|e| panic!("{file}\n{e}"));
        files += 1;
    }
    assert!(files >= 3, "only {files} examples were found");
}

/// The name of the mistake, the file, the line, the key, and text that the message must contain.
type Case = (&'static str, &'static str, usize, &'static str, &'static str);

const CASES: &[Case] = &[
    // Not TOML, or values of the wrong type.
    ("syntax", "[cache]\ndram = = 1", 2, "", ""),
    ("an open quote", "[cache]\ndram = \"1GiB\n", 2, "", "this text has no closing quote (`\"`)"),
    ("an open single quote", "[cache]\ndram = '1GiB\n", 2, "", "no closing quote (`'`)"),
    ("a text without quotes", "[cache]\ndram = 1GiB\n", 2, "", "values must be quoted"),
    ("twice", "[cache]\ndram = '1GiB'\ndram = '2GiB'", 3, "", "duplicate"),
    ("a section that is a value", "cache = 3", 1, "cache", "expected a table: write [cache]"),
    ("a section that is a list", "cache = ['4KiB', '2MiB']", 1, "cache", "expected a table"),
    ("a section twice", "[[cache]]\n[[cache]]", 1, "cache", "single brackets"),
    ("a volume that is a list", "volume = [['a', 'b']]", 1, "volume.0", "expected a table"),
    ("volumes that are a value", "volume = 'b'", 1, "volume", "expected tables"),
    ("a shape that is a list", "[shape]\na = ['hdd-7200']", 1, "shape.a", "expected a table"),
    ("shapes that are a list", "shape = []", 1, "shape", "write [shape.NAME]"),
    (
        "a value of another type",
        "[cache]\nblock_size = true",
        2,
        "cache.block_size",
        "a size such as",
    ),
    ("a list for a text", "[[volume]]\nname = ['x']\nbacking = 'y'", 2, "volume.0.name", "string"),
    ("a negative size", "[cache]\ndram = -1", 2, "cache.dram", "negative"),
    (
        "volumes that are one table",
        "[volume]\nname = 'x'",
        1,
        "volume",
        "write [[volume]] in double brackets",
    ),
    // Unknown names.
    ("an unknown section", "[cahce]", 1, "cahce", "the closest name is `cache`"),
    ("a section like nothing", "[zzzz]", 1, "zzzz", "the valid sections are `cache`"),
    (
        "an unknown key",
        "[cache]\n\nblok_size = 1",
        3,
        "cache.blok_size",
        "closest name is `block_size`",
    ),
    ("a key of elsewhere", "[cache]\npath = 'x'", 2, "cache.path", "belongs to [flash]"),
    ("a key outside", "dram = '1GiB'", 1, "dram", "belongs to [cache]"),
    ("a key of a volume", "[cache]\nbacking = 'x'", 2, "cache.backing", "belongs to [[volume]]"),
    (
        "a key of the second volume",
        "[[volume]]\nname = 'x'\nbacking = 'y'\n[[volume]]\nname = 'z'\nbacking = 'w'\nsise = 1",
        7,
        "volume.1.sise",
        "closest name is `size`",
    ),
    (
        "a key of a shape",
        "[shape.a]\nbandwith = 1",
        2,
        "shape.a.bandwith",
        "closest name is `bandwidth`",
    ),
    (
        "an unknown policy",
        "[cache]\nwrite_policy = 'writeback'",
        2,
        "cache.write_policy",
        "the closest name is `write-back`",
    ),
    ("an unknown replacement", "[replacement]\npolicy = 'lur'", 2, "replacement.policy", "`lru`"),
    (
        "replacement of the log in slots",
        "[flash]\npath = 'x'\nlayout = 'slots'\nreplacement = 'frequency'",
        4,
        "flash.replacement",
        "needs layout = \"log\"",
    ),
    (
        "replacement of slots in the log",
        "[flash]\npath = 'x'\nlayout = 'log'\nreplacement = 's3-fifo'",
        4,
        "flash.replacement",
        "needs layout = \"slots\"",
    ),
    (
        "copies that give way in the log",
        "[flash]\npath = 'x'\nlayout = 'log'\ngive_up_copies = true",
        4,
        "flash.give_up_copies",
        "applies only to the slots layout",
    ),
    (
        "a reading for dirty records in the log",
        "[flash]\npath = 'x'\nlayout = 'log'\npromote_dirty_after = 2",
        4,
        "flash.promote_dirty_after",
        "applies only to the slots layout",
    ),
    (
        "a reading for dirty records that is not counted",
        "[flash]\npath = 'x'\npromote_dirty_after = 32",
        3,
        "flash.promote_dirty_after",
        "must be from 1 to 31",
    ),
    (
        "replacement that flash does not have",
        "[flash]\npath = 'x'\nlayout = 'slots'\nreplacement = 'hr-lru'",
        4,
        "flash.replacement",
        "use `fifo`",
    ),
    (
        "parameters of cells in the log",
        "[flash]\npath = 'x'\nlayout = 'log'\nreplacement_parameters = { small_percent = 5 }",
        4,
        "flash.replacement_parameters",
        "applies only to the slots layout",
    ),
    (
        "a parameter that the policy of the cells has not",
        "[flash]\npath = 'x'\nlayout = 'slots'\nreplacement = 'arc'\nreplacement_parameters = { hands = 2 }",
        5,
        "flash.replacement_parameters.hands",
        "arc",
    ),
    (
        "a parameter that the policy has not",
        "[replacement]\npolicy = 'sieve'\nparameters = { hands = 2 }",
        3,
        "replacement.parameters.hands",
        "hand_steps_max",
    ),
    (
        "a parameter out of range",
        "[replacement]\npolicy = '2q'\n[replacement.parameters]\nin_percent = 0",
        4,
        "replacement.parameters.in_percent",
        "from 1 to 99",
    ),
    (
        "a priority of 0",
        "[[volume]]\nname = 'x'\nbacking = 'y'\npriority = 0",
        4,
        "volume.0.priority",
        "from 1 to 255",
    ),
    (
        "a priority that the policy has not",
        "[replacement]\npolicy = 'priority-lru'\n[[volume]]\nname = 'x'\nbacking = 'y'\npriority = 4",
        6,
        "volume.0.priority",
        "must be from 1 to 3",
    ),
    ("a policy like nothing", "[flush]\non_stop = 'x'", 2, "flush.on_stop", "use `destage`"),
    ("an unknown shape", "[flash]\npath = 'f'\nshape = 'floppy'", 3, "flash.shape", "hdd-7200"),
    (
        "an unknown shape of a volume",
        "[[volume]]\nname = 'x'\nbacking = 'y'\nshape = 'z'",
        4,
        "volume.0.shape",
        "[shape.z]",
    ),
    ("an unknown device", "[shape.a]\ndevice = 'FloppyDisk'", 2, "shape.a.device", "san"),
    // Policies of other caches.
    (
        "ordered",
        "[cache]\nwrite_policy = 'ordered'",
        2,
        "cache.write_policy",
        "use `write-through`",
    ),
    (
        "journaled",
        "[cache]\nwrite_policy = 'journaled-storage'",
        2,
        "cache.write_policy",
        "there is no write policy `journaled-storage`",
    ),
    // Missing keys.
    ("no flash path", "[cache]\n[flash]\nsize = '1GiB'", 2, "flash", "`path` is missing"),
    ("no backing", "[[volume]]\nname = 'x'", 1, "volume.0", "`backing` is missing"),
    // Values out of range.
    ("bare K", "[cache]\nblock_size = '4K'", 2, "cache.block_size", "write 4KiB"),
    ("no power of two", "[cache]\nblock_size = '5KiB'", 2, "cache.block_size", "5 KiB"),
    ("too small a block", "[cache]\nblock_size = '2KiB'", 2, "cache.block_size", "4KiB to 64KiB"),
    ("too large a block", "[cache]\nblock_size = '1MiB'", 2, "cache.block_size", "4KiB to 64KiB"),
    ("too little memory", "[cache]\ndram = 4096", 2, "cache.dram", "the minimum is 256 KiB"),
    ("too much memory", "[cache]\ndram = '64TiB'", 2, "cache.dram", "the maximum is"),
    ("an empty path", "[flash]\npath = ''", 2, "flash.path", "empty"),
    (
        "a small flash",
        "[flash]\npath = 'f'\nsize = '128KiB'",
        3,
        "flash.size",
        "the minimum is 256 KiB",
    ),
    (
        "an odd region",
        "[flash]\npath = 'f'\nregion_size = '15MiB'",
        3,
        "flash.region_size",
        "power of two",
    ),
    (
        "a batch over a region",
        "[flash]\npath = 'f'\nregion_size = '16MiB'\nbatch_size = '32MiB'",
        4,
        "flash.batch_size",
        "at most one region",
    ),
    (
        "an odd activity extent",
        "[flash]\npath = 'f'\nactivity_extent = 3",
        3,
        "flash.activity_extent",
        "power of two",
    ),
    ("an empty name", "[[volume]]\nname = ''\nbacking = 'y'", 2, "volume.0.name", "1 to 4096"),
    (
        "a name of two lines",
        "[[volume]]\nname = \"a\\nb\"\nbacking = 'y'",
        2,
        "volume.0.name",
        "control characters",
    ),
    ("an empty backing", "[[volume]]\nname = 'x'\nbacking = ''", 3, "volume.0.backing", "empty"),
    (
        "half a sector",
        "[[volume]]\nname = 'x'\nbacking = 'y'\nsize = 700",
        4,
        "volume.0.size",
        "512-byte sectors",
    ),
    ("no time", "[serve]\nidle_timeout = '0s'", 2, "serve.idle_timeout", "omit the key"),
    ("no time", "[serve]\nhandshake_timeout = '0s'", 2, "serve.handshake_timeout", "than 0"),
    ("no time", "[serve]\nstall_timeout = '0s'", 2, "serve.stall_timeout", "than 0"),
    ("no address", "[serve]\nnbd = '/run/nbd.sock'", 2, "serve.nbd", "unix:/path"),
    (
        "stamps all the time",
        "[flush]\nstamp_every = \"0s\"",
        2,
        "flush.stamp_every",
        "at least 10ms",
    ),
    ("nothing in parallel", "[flush]\nparallel = 0", 2, "flush.parallel", "at least 1"),
    ("too many shards", "[workers]\nshards = 65", 2, "workers.shards", "at most 64"),
    ("a wild spread", "[shape.a]\nsigma = inf", 2, "shape.a.sigma", "from 0 to 5"),
    ("no parallelism", "[shape.a]\nparallelism = 0", 2, "shape.a.parallelism", "from 1 to 65536"),
    (
        "too much parallelism",
        "[shape.a]\nparallelism = 4294967295",
        2,
        "shape.a.parallelism",
        "from 1 to 65536",
    ),
    (
        "falling percentiles",
        "[shape.a]\ndistribution = 'percentiles'\npercentiles = [[99.0, '1ms'], [50.0, '2ms']]",
        3,
        "shape.a.percentiles",
        "whose percentages rise and whose times do not fall",
    ),
    // Keys that contradict each other.
    (
        "flash without flash",
        "[cache]\nwrite_policy = 'write-back'\nacknowledge = 'flash'",
        3,
        "cache.acknowledge",
        "needs a [flash] section",
    ),
    (
        "acknowledging write-through",
        "[cache]\nacknowledge = 'dram'",
        2,
        "cache.acknowledge",
        "write-through",
    ),
    (
        "two volumes of one name",
        "[[volume]]\nname = 'x'\nbacking = 'y'\n[[volume]]\nname = 'x'\nbacking = 'z'",
        5,
        "volume.1.name",
        "volume.0",
    ),
    (
        "two volumes on one store",
        "[[volume]]\nname = 'x'\nbacking = 'y'\n[[volume]]\nname = 'z'\nbacking = 'y'",
        6,
        "volume.1.backing",
        "volume.0, `x`",
    ),
    (
        "a volume on the flash tier",
        "[flash]\npath = 'y'\n[[volume]]\nname = 'x'\nbacking = 'y'",
        5,
        "volume.0.backing",
        "the flash tier",
    ),
    (
        "open to the world",
        "[serve]\nnbd = 'tcp:0.0.0.0:10809'",
        2,
        "serve.nbd",
        "without encryption",
    ),
    (
        "control open to the world",
        "[serve]\ncontrol = 'tcp:192.0.2.1:80'",
        2,
        "serve.control",
        "127.0.0.1",
    ),
    (
        "one socket for two",
        "[serve]\nnbd = 'unix:/a'\ncontrol = 'unix:/a'",
        3,
        "serve.control",
        "also the address of serve.nbd",
    ),
    (
        "percentiles of nothing",
        "[shape.a]\npercentiles = [[50.0, '1ms']]",
        2,
        "shape.a.percentiles",
        "distribution",
    ),
    (
        "no percentiles",
        "[shape.a]\ndistribution = 'percentiles'",
        1,
        "shape.a.percentiles",
        "percentages rise",
    ),
    ("nowhere to keep it", "[flush]\non_stop = 'keep'", 2, "flush.on_stop", "needs a [flash]"),
    ("a time without a unit", "[shape.a]\nread_latency = '10'", 2, "shape.a.read_latency", "10ms"),
    (
        "a remote store that cannot be reached",
        "[[volume]]\nname = 'x'\nbacking = 'nbds://h/e'",
        3,
        "volume.0.backing",
        "nbd://HOST/EXPORT",
    ),
    ("a fraction of a shard", "[workers]\nshards = 1.5", 2, "workers.shards", "1.5"),
];

#[test]
fn every_mistake_is_refused_with_its_key_its_line_and_a_way_out() {
    for &(what, file, line, key, says) in CASES {
        let error = Config::from_toml(file).expect_err(what);
        let problem = &error.problems[0];
        assert_eq!(error.problems.len(), 1, "{what}: {error}");
        assert_eq!((problem.line, problem.key.as_str()), (Some(line), key), "{what}: {error}");
        assert!(problem.message.contains(says), "{what}: `{}` lacks `{says}`", problem.message);
    }
}

#[test]
fn all_mistakes_are_reported_together_in_the_order_of_the_file() {
    let file = "[cache]\nblok_size = 1\n[flash]\nsize = 1\n[volumes]\n";
    let error = Config::from_toml(file).unwrap_err();
    let lines: Vec<_> = error.problems.iter().map(|p| p.line.unwrap()).collect();
    assert_eq!(lines, [2, 3, 5], "{error}");
    let file = "[cache]\nblock_size = 1\n[flush]\nparallel = 0\n[workers]\nrequests_max = 0";
    assert_eq!(Config::from_toml(file).unwrap_err().problems.len(), 3);
}

#[test]
fn an_unknown_key_does_not_hide_a_wrong_value() {
    let file = "[[volume]]\nname = \"a\"\nbacking = \"x\"\nsiez = 1\n[cache]\n\
                write_policy = \"writeback\"\nblock_size = true\n[replacement]\n\
                parameters = { a = 1, b = -1 }\n";
    let error = Config::from_toml(file).unwrap_err();
    let found: Vec<_> = error.problems.iter().map(|p| (p.line.unwrap(), p.key.as_str())).collect();
    let expected = [
        (4, "volume.0.siez"),
        (6, "cache.write_policy"),
        (7, "cache.block_size"),
        (9, "replacement.parameters.b"),
    ];
    assert_eq!(found, expected, "{error}");
    assert!(error.to_string().contains("closest name is `write-back`"), "{error}");
}

#[test]
fn an_error_says_which_volume_it_is_about() {
    let says = |file: &str| Config::from_toml(file).unwrap_err().to_string();
    assert_eq!(
        says("[[volume]]\nname = \"a\""),
        "configuration:1: the first [[volume]] (name \"a\"): `backing` is missing"
    );
    assert_eq!(
        says("[[volume]]\nbacking = \"x\""),
        "configuration:1: the first [[volume]]: `name` is missing"
    );
    let one = |n: usize| format!("[[volume]]\nname = \"v{n}\"\nbacking = \"x{n}\"\n");
    let four: String = (1..=4).map(one).collect();
    let text = says(&format!("{four}priority = 0\n"));
    let place = "configuration:13: priority in [[volume]] number 4 (name \"v4\"): must be from";
    assert!(text.starts_with(place), "{text}");
}

#[test]
fn an_error_names_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("forebay.toml");
    std::fs::write(&path, "[cache]\ndarm = 1\n").unwrap();
    let text = Config::load(&path).unwrap_err().to_string();
    assert!(text.contains("forebay.toml:2: cache.darm: "), "{text}");
    let text = Config::load(&dir.path().join("none.toml")).unwrap_err().to_string();
    assert!(text.contains("none.toml: cannot be read"), "{text}");
}

#[test]
fn a_configuration_without_volumes_can_be_simulated_but_not_served() {
    let error = Config::default().check_volumes().unwrap_err().in_file(Path::new("f.toml"));
    let text = error.to_string();
    assert!(text.starts_with("f.toml: there is nothing to serve: add a [[volume]]"), "{text}");
}

/// Removes, doubles or replaces every byte of the full file in turn. Parsing must not panic, and an
/// error must have a message.
#[test]
fn no_mutation_of_a_file_makes_reading_it_panic() {
    let (mut accepted, mut refused) = (0, 0);
    for at in 0..FULL.len() {
        for with in ["", "\"", "[", "]", "=", "\n", "0", "-", ".", "{", "é"] {
            let file = format!("{}{with}{}", &FULL[..at], &FULL[at + 1..]);
            match Config::from_toml(&file) {
                Ok(_) => accepted += 1,
                Err(error) => {
                    refused += 1;
                    assert!(!error.to_string().is_empty());
                }
            }
        }
    }
    assert!(accepted > 0 && refused > accepted, "{accepted} accepted, {refused} refused");
}

#[test]
fn a_configuration_built_in_memory_is_checked_alike() {
    let mut config = Config::default();
    config.flush.parallel = 0;
    config.flash = Some(forebay_config::Flash { path: "/dev/x".into(), ..Default::default() });
    config.admission.policy = "random".parse().unwrap();
    config.admission.probability = Some(f64::NAN);
    config.workers.shards = 1000;
    let problems = config.check().unwrap_err();
    let keys: Vec<_> = problems.iter().map(|p| p.key.as_str()).collect();
    assert_eq!(keys, ["admission.probability", "flush.parallel", "workers.shards"]);
}
