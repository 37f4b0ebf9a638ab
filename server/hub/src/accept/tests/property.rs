//! An acceptance that keeps the results of unchanged objects gives the same result as an acceptance of all objects.

use super::*;

/// Number of changes of each sequence.
const CHANGES: usize = 60;

const SEQUENCES: u64 = 8;

/// Names of members, few enough for conflicts.
const NAMES: [&str; 6] = ["a", "b", "bad", "c", "d", "e"];

/// A generator of pseudo-random numbers (splitmix64), so that a failed sequence can be repeated by its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % end as u64).unwrap()
    }

    fn choose<T: Clone>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())].clone()
    }
}

/// Changes a random object of the hub.
fn change(hub: &mut Hub, random: &mut Random) {
    let name = random.choose(&NAMES);
    match random.below(14) {
        0..4 => {
            let more = [
                json!({}),
                json!({"index": random.below(4)}),
                json!({"serverNames": [format!("{}.example.com", random.choose(&NAMES))]}),
                json!({"endpoints": ["https://127.0.0.1"]}),
                json!({"endpoints": ["https://all.example.com:7443"]}),
                json!({"dispatch": "DenyAll"}),
                json!({"unknown": 1}),
            ];
            hub.put_member(name, random.choose(&more));
        }
        4 => hub.delete_member(name),
        5 => {
            hub.put_secret(name, json!({"token": STANDARD.encode(format!("t{}", hub.version)), "ca.crt": authority()}))
        }
        6 => hub.put_secret(name, json!({"ca.crt": authority()})),
        7 => drop(hub.secrets.remove(name)),
        8..10 => {
            let data = [json!({}), json!({"token": "bmV3"}), json!({"token": null}), json!({"ca.crt": null})];
            let annotations = json!({"tributary.dev/cluster-name": random.choose(&NAMES)});
            hub.put_gateway_secret(
                random.choose(&NAMES),
                random.choose(&data),
                random.choose(&[json!({}), annotations]),
            );
        }
        10 => hub.delete_item("kubevela", name),
        11 => {
            let mut spec = json!({"clusterGatewaySecrets": {"namespace": "vela-system"}});
            spec["missingCA"] = json!(random.choose(&["Refuse", "Insecure"]));
            spec["identity"] = json!({"type": random.choose(&["Impersonate", "Stored"])});
            hub.put_source("kubevela", spec);
        }
        12 => {
            let resources = json!([random.choose(&["pods", "services", "nonsense..", "secrets"])]);
            let versions = random.choose(&["Composite", "Integer"]);
            let spec = json!({"resources": resources, "itemResourceVersions": versions, "placement": name});
            hub.put(HubKind::ResourceRegistry, random.choose(&["one", "two"]), json!({ "spec": spec }));
        }
        _ => hub.put(HubKind::DeniedUsers, name, json!({"deniedUsers": [random.choose(&[json!(name), json!(1)])]})),
    }
}

/// The parts of an acceptance that other parts of the process use, as text.
fn describe(accepted: &Acceptance, in_force: &InForce) -> String {
    let LoadedConfiguration { clusters, foreign, objects, dispatch, flow_control, logging, .. } =
        &accepted.configuration;
    let cluster = |spec: &Arc<ClusterSpec>| {
        let url = spec.config.as_ref().map(|config| config.cluster_url.clone());
        let ClusterSpec { name, origin, index, labels, hosts, user_fingerprint, warnings, .. } = &**spec;
        format!("{name} {origin} {url:?} {index:?} {labels:?} {:?} {user_fingerprint} {warnings:?}\n", hosts.names)
    };
    let clusters: String = clusters.iter().map(cluster).collect();
    let verdicts: String = accepted.verdicts.iter().map(|verdict| format!("{verdict:?}\n")).collect();
    let (registries, denied) = (&objects.registries, &accepted.denied);
    let in_force = serde_json::to_string(in_force).unwrap();
    format!(
        "{clusters}{verdicts}{registries:?}\n{denied:?}\n{foreign:?}\n{dispatch:?}\n{flow_control:?}\n{logging:?}\n{in_force}"
    )
}

#[tokio::test(start_paused = true)]
async fn unchanged_objects_give_the_same_result_as_an_acceptance_of_all_objects() {
    for seed in 0..SEQUENCES {
        let (mut hub, mut random) = (Hub::default(), Random(seed));
        hub.put_gateway_source("kubevela");
        let mut refused = 0;
        for step in 0..CHANGES {
            change(&mut hub, &mut random);
            let snapshot = hub.snapshot();
            // A copy of the objects in force has no results of earlier judgements.
            let copy = serde_json::to_string(&hub.in_force).unwrap();
            let in_force = serde_json::from_str(&copy).unwrap();
            let guard = DisappearanceGuard::clone(&hub.guard);
            let mut anew = Hub { in_force, guard, ..Hub::default() };
            let expected = anew.accept_snapshot(&snapshot, &no_bad_member).await;
            let accepted = hub.accept_snapshot(&snapshot, &no_bad_member).await;
            let (own, expected) = (describe(&accepted, &hub.in_force), describe(&expected, &anew.in_force));
            assert_eq!(own, expected, "seed {seed}, step {step}");
            refused += outcome(&accepted).1.len();
        }
        assert!(refused > 0 && !hub.in_force.members.is_empty(), "seed {seed}: the sequence tests nothing");
    }
}
