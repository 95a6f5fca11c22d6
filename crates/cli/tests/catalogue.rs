//! Goal: a device means the same in `forebay plan` and in a configuration's `[shape]`. Method:
//! compare the two tables; neither crate may depend on the other.

use forebay_config::CATALOGUE;
use forebay_plan::Catalogue;

#[test]
fn devices_of_the_planner_and_of_shapes_have_the_same_latencies() {
    let planner = Catalogue::default();
    let names: Vec<_> = planner.devices().iter().map(|d| d.name.as_str()).collect();
    assert_eq!(names, CATALOGUE.map(|d| d.name));
    for device in CATALOGUE {
        let theirs = planner.device(device.name).unwrap();
        let near = |us: f64, ns: f64| (us * 1000.0 - ns).abs() < 1e-6 * ns;
        assert!(near(theirs.read_latency_us, device.read_latency_ns), "{}", device.name);
        assert!(near(theirs.write_latency_us, device.write_latency_ns), "{}", device.name);
    }
}
