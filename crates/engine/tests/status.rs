//! What an engine says of itself.

use forebay_block::Volume;
use forebay_config::{Acknowledge, Config, WritePolicy};
use forebay_engine::{Engine, EngineOptions, Submission};

#[test]
fn a_request_counts_when_it_arrives_and_its_time_when_it_is_answered() {
    let directory = tempfile::tempdir().unwrap();
    let text = format!(
        "[cache]\ndram = '1MiB'\n[shape.slow]\nread_latency = '200ms'\n\
         [[volume]]\nname = 'a'\nbacking = '{}'\nsize = '4MiB'\nshape = 'slow'\n",
        directory.path().join("a.img").display()
    );
    let config = Config::from_toml(&text).unwrap();
    let engine = Engine::open(&config, EngineOptions::default()).unwrap();
    let mut session = engine.session().unwrap();
    let buffer = session.buffer(4096);
    let read = Submission::read(1, Volume(0), 0, 4096, buffer);
    let mut done = Vec::new();
    session.submit(&mut vec![read], &mut done);
    // (The store takes 200 ms for it.)
    let meanwhile = engine.status().total;
    while done.is_empty() {
        session.wait(None, &mut done);
    }
    let after = engine.status().total;
    assert_eq!((meanwhile.reads, after.reads), (1, 1));
    assert_eq!((meanwhile.answered.read.count, meanwhile.answered.read.sum_ns), (0, 0));
    assert_eq!((after.answered.read.count, after.answered.all.count), (1, 1));
    assert!(after.answered.read.sum_ns >= 100_000_000, "{:?}", after.answered);
}

/// A server without flash cannot keep from a kill what it has answered, and must not say that it does.
/// Method: the acknowledgement of the status after each change, without flash and with it.
#[test]
fn a_change_to_write_back_acknowledges_as_configured_and_never_from_flash_that_is_not_there() {
    let engine = |more: &str| {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        let text = format!(
            "[cache]\ndram = '1MiB'\n{}\n[[volume]]\nname = 'a'\nbacking = '{}'\nsize = '4MiB'\n",
            more.replace(
                "FLASH",
                &format!("[flash]\nsize = '16MiB'\npath = '{}'", path("flash.img"))
            ),
            path("a.img")
        );
        let config = Config::from_toml(&text).unwrap();
        (Engine::open(&config, EngineOptions::default()).unwrap(), directory)
    };
    let holds = |engine: &Engine| {
        let status = engine.status();
        (status.write_policy, status.acknowledge)
    };
    let (back, through) = (WritePolicy::WriteBack, WritePolicy::WriteThrough);
    let is = |policy: WritePolicy, acknowledge: Acknowledge| {
        (policy.to_string(), acknowledge.to_string())
    };

    let (memory, _directory) = engine("");
    memory.set_policy(back, None).unwrap();
    assert_eq!(holds(&memory), is(back, Acknowledge::Dram));
    memory.set_policy(through, None).unwrap();
    let refused = memory.set_policy(back, Some(Acknowledge::Flash)).unwrap_err().to_string();
    assert!(refused.contains("no flash tier") && refused.contains("\"dram\""), "{refused}");
    assert_eq!(holds(&memory).0, through.to_string());

    let (flash, _directory) = engine("FLASH");
    flash.set_policy(back, None).unwrap();
    assert_eq!(holds(&flash), is(back, Acknowledge::Flash));

    let (configured, _directory) =
        engine("write_policy = 'write-back'\nacknowledge = 'dram'\nFLASH");
    configured.set_policy(through, None).unwrap();
    configured.set_policy(back, None).unwrap();
    assert_eq!(holds(&configured), is(back, Acknowledge::Dram));
    configured.set_policy(back, Some(Acknowledge::Flash)).unwrap();
    configured.set_policy(through, None).unwrap();
    configured.set_policy(back, None).unwrap();
    assert_eq!(holds(&configured), is(back, Acknowledge::Flash));
}
