use super::*;

fn image(size: u64) -> (tempfile::TempDir, OpenOptions) {
    let directory = tempfile::tempdir().unwrap();
    let mut options = OpenOptions::existing(directory.path().join("image"));
    options.create = Some(size);
    (directory, options)
}

#[test]
fn a_file_is_created_once_and_then_left_as_long_as_it_is() {
    let (_directory, mut options) = image(1 << 20);
    options.allocate = true;
    let (mut target, _) = Target::open(&options).unwrap();
    assert_eq!((target.size(), target.is_new()), (1 << 20, true));
    target.keep();
    drop(target);
    options.create = Some(1 << 22);
    let (target, _) = Target::open(&options).unwrap();
    assert_eq!((target.size(), target.is_new()), (1 << 20, false));
    drop(target);
    assert!(options.path.exists());
}

#[test]
fn a_file_that_was_created_in_vain_is_removed() {
    let (_directory, options) = image(1 << 20);
    drop(Target::open(&options).unwrap());
    assert!(!options.path.exists());
}

#[test]
fn what_others_put_in_the_place_of_a_new_file_stays() {
    let (directory, options) = image(1 << 20);
    let other = directory.path().join("other");
    // Another file replaces it under its name.
    let target = Target::open(&options).unwrap().0;
    std::fs::write(&other, "theirs").unwrap();
    std::fs::rename(&other, &options.path).unwrap();
    drop(target);
    assert_eq!(std::fs::read(&options.path).unwrap(), b"theirs");
    std::fs::remove_file(&options.path).unwrap();
    // Someone writes to the created file.
    let target = Target::open(&options).unwrap().0;
    std::fs::write(&options.path, "theirs").unwrap();
    drop(target);
    assert_eq!(std::fs::read(&options.path).unwrap(), b"theirs");
    std::fs::remove_file(&options.path).unwrap();
    // A symbolic link to it takes its place.
    let target = Target::open(&options).unwrap().0;
    std::fs::rename(&options.path, &other).unwrap();
    std::os::unix::fs::symlink(&other, &options.path).unwrap();
    drop(target);
    assert!(std::fs::symlink_metadata(&options.path).is_ok() && other.exists());
}

#[test]
fn of_two_that_create_a_file_at_once_one_has_it_and_the_other_leaves_it_alone() {
    use std::os::unix::fs::MetadataExt;
    let (_directory, options) = image(1 << 20);
    let mut refused = 0;
    for round in 0..400 {
        let start = std::sync::Barrier::new(2);
        let once = || {
            start.wait();
            Target::open(&options).map(|(mut target, _)| {
                target.keep();
                target
            })
        };
        let [one, other] = std::thread::scope(|scope| {
            [scope.spawn(once), scope.spawn(once)].map(|thread| thread.join().unwrap())
        });
        refused += u32::from(one.is_err() != other.is_err());
        assert!(one.is_err() || other.is_err(), "both have it, round {round}");
        for target in [one, other].into_iter().flatten() {
            let there = std::fs::metadata(&options.path).expect("the file is gone").ino();
            assert_eq!(there, target.file.metadata().unwrap().ino(), "another file, round {round}");
        }
        let _ = std::fs::remove_file(&options.path);
    }
    assert!(refused > 0, "nobody ever met the other");
}

#[test]
fn a_target_in_use_is_refused_with_the_holders_name() {
    let (_directory, options) = image(1 << 20);
    let (first, _) = Target::open(&options).unwrap();
    let error = Target::open(&options).unwrap_err();
    assert!(matches!(error, OpenError::InUse { .. }));
    assert!(error.to_string().contains("in use by this process itself"), "{error}");
    assert!(options.path.exists(), "a refused one removes what it has not made");
    drop(first);
    assert!(Target::open(&options).is_ok());
}

#[test]
fn readers_share_and_exclude_writers() {
    let (_directory, options) = image(1 << 20);
    Target::open(&options).unwrap().0.keep();
    let read_only = OpenOptions { read_only: true, create: None, ..options.clone() };
    let _first = Target::open(&read_only).unwrap();
    let _second = Target::open(&read_only).unwrap();
    assert!(matches!(Target::open(&options), Err(OpenError::InUse { .. })));
}

#[test]
fn what_is_missing_too_small_or_no_file_is_refused_and_not_created() {
    let (directory, mut options) = image(0);
    let error = Target::open(&options).unwrap_err();
    assert!(matches!(error, OpenError::TooSmall { .. }), "{error}");
    assert!(error.to_string().contains("is empty"), "{error}");
    assert!(!options.path.exists() || std::fs::remove_file(&options.path).is_ok());
    options.create = None;
    let error = Target::open(&options).unwrap_err();
    assert!(matches!(&error, OpenError::Io { action: "open", .. }), "{error}");
    options.path = directory.path().to_owned();
    assert!(matches!(Target::open(&options), Err(OpenError::Kind { .. })));
    options.path = "/dev/null".into();
    assert!(matches!(Target::open(&options), Err(OpenError::Kind { .. })));
}

#[test]
fn in_place_of_a_device_that_is_missing_no_file_is_created() {
    let (directory, mut options) = image(1 << 20);
    let link = directory.path().join("devices");
    std::os::unix::fs::symlink("/dev", &link).unwrap();
    for path in [Path::new("/dev/forebay-none"), &link.join("forebay-none")] {
        options.path = path.to_owned();
        let error = Target::open(&options).unwrap_err();
        assert!(matches!(error, OpenError::NoDevice { .. }) && !path.exists(), "{error}");
    }
    // `/dev/shm` is a place for files.
    if Path::new("/dev/shm").is_dir() {
        options.path = format!("/dev/shm/forebay-test-{}", std::process::id()).into();
        drop(Target::open(&options).unwrap());
    }
}

#[test]
fn a_window_shifts_offsets_and_must_fit() {
    let (_directory, mut options) = image(1 << 20);
    options.direct = DirectIo::Never;
    let open = || Target::open(&options).unwrap().0;
    let target = open().window(4096, 8192).unwrap();
    assert_eq!((target.size(), target.raw().1), (8192, 4096));
    drop(target);
    let error = open().window(4096, 1 << 20).unwrap_err();
    assert!(error.to_string().contains("4096+1048576"), "{error}");
    assert!(open().window(u64::MAX, 2).is_err());
}

#[test]
fn buffered_files_are_announced_and_need_no_alignment() {
    let (_directory, mut options) = image((1 << 20) + 100);
    options.direct = DirectIo::Never;
    let (target, notices) = Target::open(&options).unwrap();
    assert!(matches!(notices[..], [Notice::Buffered { .. }]));
    assert_eq!(target.size(), (1 << 20) + 100);
    assert_eq!(target.capabilities().logical_block, 1);
}

#[test]
fn zeroing_gives_space_back_exactly_where_it_may() {
    use std::os::unix::fs::MetadataExt;
    let (_directory, mut options) = image(1 << 20);
    options.direct = DirectIo::Never;
    let target = Target::open(&options).unwrap().0;
    std::fs::write(&options.path, vec![7; 1 << 20]).unwrap();
    File::open(&options.path).unwrap().sync_all().unwrap();
    // `blocks` counts units of 512 bytes on any file system.
    let held = || std::fs::metadata(&options.path).unwrap().blocks();
    let before = held();
    for (punch, given_back) in [(false, 0), (true, 1024)] {
        // SAFETY: zeroing has no memory.
        let done = unsafe { target.perform(Verb::WriteZeroes { punch }, 0, 512 << 10, &[]) };
        if done == Err(DeviceError::Unsupported) {
            continue;
        }
        assert_eq!(done, Ok(512 << 10));
        let least = before - given_back;
        assert!((least..least + 64).contains(&held()), "{before} blocks, then {}", held());
        let read = std::fs::read(&options.path).unwrap();
        assert!(read[..512 << 10].iter().all(|&byte| byte == 0));
        assert!(read[512 << 10..].iter().all(|&byte| byte == 7));
    }
}
