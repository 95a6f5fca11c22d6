//! Goal: a device has the same properties in `forebay plan` and as the `shape` of a configuration.
//! Method: compare the two tables; neither crate may depend on the other.

use forebay_model::Profile;
use forebay_plan::Catalogue;

#[test]
fn devices_of_the_planner_have_the_same_latencies_as_shapes() {
    let planner = Catalogue::default();
    let names: Vec<_> = planner.devices().iter().map(|d| d.name.as_str()).collect();
    assert_eq!(names, Profile::NAMES[..7]);
    for device in planner.devices() {
        let theirs = Profile::named(&device.name).unwrap();
        // Models round latencies to whole nanoseconds.
        let near = |us: f64, ns: u64| (us * 1000.0 - ns as f64).abs() <= 0.5;
        assert!(near(device.read_latency_us, theirs.read.mean().0), "{}", device.name);
        assert!(near(device.write_latency_us, theirs.write.mean().0), "{}", device.name);
    }
}
