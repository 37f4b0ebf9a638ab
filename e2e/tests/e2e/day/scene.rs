//! Servers of the simulated day: three clusters, the relays in front of them, Tributary with all features, and the
//! users' RBAC rights.

use crate::context::{TestContext, eventually};
use crate::shared_mode::grant;
use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::sync::Mutex;
use tributary_e2e::{Access, HttpClient, PeopleAuthority, TestCluster, Tributary, guard, namespace};
use tributary_simulator::Relay;

/// Longest time on a busy machine until a server starts, or a change of rights or files takes effect.
pub(super) const SOON: Duration = Duration::from_secs(90);

/// Names of the clusters. The first cluster has two kube-apiservers and running pods. The third cluster leaves and
/// joins.
pub(super) const CLUSTERS: [&str; 3] = ["day-one", "day-two", "day-three"];

pub(super) const VISITOR: usize = 2;

/// Number of ConfigMaps in each cluster that all users may read (the common objects).
pub(super) const MAPS: usize = 40;

/// Number of large ConfigMaps, and size of each in bytes.
const LARGE_MAPS: usize = 12;
const LARGE_BYTES: usize = 200_000;

pub(super) const POD: &str = "talker";

/// Group of all users. It has the right to read the common objects.
pub(super) const EVERYBODY: &str = "day";

/// Flags with low limits of Tributary's histories, caches and logs. The load reaches these limits within minutes
/// instead of half an hour, so unbounded growth becomes visible.
const SCALED_DOWN: [&str; 8] = [
    "--history-seconds=20",
    "--history-bytes=1048576",
    "--encodings-bytes=1048576",
    "--unused-seconds=30",
    "--audit-log-maxsize=4",
    "--audit-log-maxbackup=2",
    "--access-log-maxsize=4",
    "--access-log-maxbackup=2",
];

/// Audit policy that records bodies. Tributary must buffer these bodies and free the memory.
const AUDIT_POLICY: &str = "
apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- {level: RequestResponse, verbs: [create, patch, update, delete]}
- {level: Metadata}
";

pub(super) struct Namespaces {
    /// Namespace of the objects that all users may read, in all clusters. These objects never change.
    pub(super) common: String,
    /// Namespace with one private object of each user.
    pub(super) private: String,
    /// Namespace of the objects that the writers change all the time.
    pub(super) written: String,
    /// Namespace of the large objects, which have [`LARGE_BYTES`] each.
    pub(super) large: String,
}

pub(super) struct Scene {
    pub(super) tributary: Arc<Tributary>,
    pub(super) members: [Arc<TestCluster>; 3],
    /// Relays between Tributary and the kube-apiservers of each cluster.
    pub(super) wires: [Vec<Relay>; 3],
    /// Ports of the two kube-apiservers of the first cluster.
    pub(super) ports: [u16; 2],
    /// Relay between some clients and Tributary.
    pub(super) front: Relay,
    pub(super) namespaces: Namespaces,
    pub(super) configuration: Mutex<Configuration>,
    people: PeopleAuthority,
    folder: tempfile::TempDir,
}

pub(super) struct Configuration {
    folder: PathBuf,
    /// URLs of the endpoints of each cluster.
    endpoints: [Vec<String>; 3],
    /// Name of a Secret for each cluster. The token in the cluster's token file is bound to this Secret.
    tokens: [String; 3],
    issued: usize,
}

impl Scene {
    pub(super) async fn start(context: &TestContext, seed: u64) -> anyhow::Result<Self> {
        let tools = context.fixture.tools().await?;
        let start = |name: &str| {
            TestCluster::builder(name)
                // Without this flag, the server waits up to a minute for the end of its watches.
                .apiserver_argument("--shutdown-watch-termination-grace-period=1s")
                .apiserver_argument("--shutdown-send-retry-after=true")
        };
        let first = start(CLUSTERS[0]).kwok(true).nodes(1).start(tools).await?;
        let others = (start(CLUSTERS[1]).start(tools), start(CLUSTERS[VISITOR]).start(tools));
        let (second, third) = tokio::try_join!(others.0, others.1)?;
        let ports = [first.apiserver_port(), first.start_another_apiserver().await?];
        let members = [first, second, third].map(Arc::new);
        let mut wires = [Vec::new(), Vec::new(), Vec::new()];
        for (number, own) in wires.iter_mut().enumerate() {
            let to = if number == 0 { ports.to_vec() } else { vec![members[number].apiserver_port()] };
            for port in to {
                own.push(Relay::start(port, seed ^ u64::from(port)).await?);
            }
        }
        let folder = guard::temporary_folder("day")?;
        let configuration = Configuration::first(folder.path(), &members, &wires).await?;
        let people = PeopleAuthority::new("the people's authority")?;
        let file = |name: &str, text: &str| -> anyhow::Result<String> {
            let path = folder.path().join(name);
            fs::write(&path, text)?;
            Ok(path.display().to_string())
        };
        let client_ca = file("clients.crt", people.pem())?;
        let audit_policy = file("audit.yaml", AUDIT_POLICY)?;
        let log = |name: &str| folder.path().join(name).display().to_string();
        let tributary = Tributary::configured(&configuration.folder)
            .shared(Path::new(&client_ca))
            .arguments(SCALED_DOWN)
            .argument(format!("--audit-policy-file={audit_policy}"))
            .argument(format!("--audit-log-path={}", log("audit.log")))
            .argument(format!("--access-log-path={}", log("access.log")))
            .start()
            .await?;
        let port = tributary.url().rsplit_once(':').and_then(|(_, port)| port.trim_matches('/').parse().ok());
        let front = Relay::start(port.context("the port of Tributary")?, seed ^ 0xf0).await?;
        let name = namespace::unique_name;
        let namespaces = Namespaces {
            common: name("common"),
            private: name("private"),
            written: name("written"),
            large: name("large"),
        };
        let scene = Self {
            tributary: context.fixture.watch_log(tributary).await,
            members,
            wires,
            ports,
            front,
            namespaces,
            configuration: Mutex::new(configuration),
            people,
            folder,
        };
        scene.furnish().await?;
        Ok(scene)
    }

    /// Creates the namespaces and objects of the test, and the RBAC rights that all users have.
    async fn furnish(&self) -> anyhow::Result<()> {
        let Namespaces { common, private, written, large } = &self.namespaces;
        for member in &self.members {
            for place in [common, private, written, large] {
                namespace::create(place, &[member]).await?;
            }
            for number in 0..MAPS {
                self.make_map(member, common, &format!("{}-{number:02}", member.name()), "x").await?;
            }
            let rules = json!([
                {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]},
            ]);
            for place in [common, large] {
                grant_group(member, place, rules.clone()).await?;
            }
        }
        for number in 0..LARGE_MAPS {
            self.make_map(&self.members[1], large, &format!("large-{number}"), &"x".repeat(LARGE_BYTES)).await?;
        }
        let pod = crate::kubectl::pod(POD, &format!("{}-node-0", CLUSTERS[0]));
        let pods = format!("/api/v1/namespaces/{private}/pods");
        self.members[0].http().post(&pods, &pod).send().await?.expect(201)?;
        Ok(())
    }

    /// Creates a ConfigMap whose data names the member.
    pub(super) async fn make_map(
        &self,
        member: &TestCluster,
        place: &str,
        name: &str,
        text: &str,
    ) -> anyhow::Result<()> {
        let data = json!({"home": member.name(), "owner": name, "text": text, "round": "0"});
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data});
        let path = format!("/api/v1/namespaces/{place}/configmaps");
        member.http().post(&path, &map).send().await?.expect(201).map(drop)
    }

    /// Writes a kubeconfig of a user, with the address of Tributary or of the front relay.
    pub(super) fn kubeconfig(&self, name: &str, through_front: bool) -> anyhow::Result<PathBuf> {
        let path = self.folder.path().join(namespace::unique_name("person"));
        self.tributary.kubeconfig_of(&path, &self.people.user(name, &[EVERYBODY])?, &CLUSTERS)?;
        if through_front {
            let text = fs::read_to_string(&path)?;
            let own = self.tributary.url().trim_end_matches('/').to_owned();
            ensure!(text.contains(&own), "the kubeconfig does not name {own}");
            fs::write(&path, text.replace(&own, &format!("https://127.0.0.1:{}", self.front.port())))?;
        }
        Ok(path)
    }

    pub(super) async fn http(&self, name: &str, through_front: bool) -> anyhow::Result<HttpClient> {
        HttpClient::from_kubeconfig(&self.kubeconfig(name, through_front)?, None).await
    }

    /// Grants a user RBAC rules in a namespace of a cluster.
    pub(super) async fn grant(&self, cluster: usize, place: &str, user: &str, rules: Value) -> anyhow::Result<()> {
        grant(&self.members[cluster], place, user, user, rules).await
    }

    /// Creates the user `operator`, the only user that may read the metrics of all clusters, and returns its client.
    pub(super) async fn operator(&self) -> anyhow::Result<HttpClient> {
        let rules = json!([{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]);
        for member in &self.members {
            grant(member, "", "operator", "operator", rules.clone()).await?;
        }
        let http = self.http("operator", false).await?;
        eventually(SOON, async || http.get("/metrics").send().await?.expect(200).map(drop)).await?;
        Ok(http)
    }

    /// Copies Tributary's log out of the temporary folder, and returns the new path.
    pub(super) fn keep_log(&self, seed: u64) -> String {
        let path = std::env::temp_dir().join(format!("tributary-day-{seed}.log"));
        match fs::write(&path, self.tributary.log()) {
            Ok(()) => path.display().to_string(),
            Err(_) => "nowhere".to_owned(),
        }
    }
}

/// Grants all users RBAC rules in a namespace of a member.
async fn grant_group(member: &TestCluster, place: &str, rules: Value) -> anyhow::Result<()> {
    let api = "rbac.authorization.k8s.io";
    let path = |plural: &str| format!("/apis/{api}/v1/namespaces/{place}/{plural}");
    let role = json!({
        "apiVersion": format!("{api}/v1"), "kind": "Role", "metadata": {"name": EVERYBODY}, "rules": rules,
    });
    member.http().post(&path("roles"), &role).send().await?.expect(201)?;
    let binding = json!({
        "apiVersion": format!("{api}/v1"), "kind": "RoleBinding", "metadata": {"name": EVERYBODY},
        "subjects": [{"apiGroup": api, "kind": "Group", "name": EVERYBODY}],
        "roleRef": {"apiGroup": api, "kind": "Role", "name": EVERYBODY},
    });
    member.http().post(&path("rolebindings"), &binding).send().await?.expect(201).map(drop)
}

/// Flow-control limit of requests to the merged view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    /// A limited rate for each user.
    Usual,
    /// A limited number of concurrent requests for each user.
    AtOnce,
    None,
}

impl Configuration {
    async fn first(folder: &Path, members: &[Arc<TestCluster>; 3], wires: &[Vec<Relay>; 3]) -> anyhow::Result<Self> {
        let folder = folder.join("configuration");
        fs::create_dir(&folder)?;
        let endpoints = wires
            .each_ref()
            .map(|own| own.iter().map(|wire| format!("https://127.0.0.1:{}", wire.port())).collect::<Vec<_>>());
        let mut own = Self { folder, endpoints, tokens: Default::default(), issued: 0 };
        for (number, member) in members.iter().enumerate() {
            make_account(member).await?;
            own.exchange_token(number, member).await?;
            own.put_cluster(number, member)?;
        }
        own.put_limit(Limit::Usual, None)?;
        Ok(own)
    }

    /// Replaces a file atomically. Otherwise the server could read a half-written file and would refuse it.
    fn put(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let next = self.folder.join(format!("{name}.next"));
        fs::write(&next, text)?;
        Ok(fs::rename(next, self.folder.join(name))?)
    }

    pub(super) fn put_cluster(&self, number: usize, member: &TestCluster) -> anyhow::Result<()> {
        let name = member.name();
        self.put(&format!("{name}.ca"), &member.access().certificate_authority)?;
        let file = |kind: &str| self.folder.join(format!("{name}.{kind}"));
        let all = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "nonResourceURLs": ["*"]});
        let schema = json!({"name": "own", "maxRequestsInflight": {"max": 200, "limitBy": ["User"]}});
        let object = json!({
            "apiVersion": "tributary.dev/v1alpha1", "kind": "UpstreamCluster", "metadata": {"name": name},
            "spec": {
                "endpoints": self.endpoints[number], "caFile": file("ca"), "credentials": {"tokenFile": file("token")},
                "dispatchPolicies": [{"rules": [all], "flowControlSchemaName": "own"}],
                "logging": {"mode": "Enabled"},
                "flowControl": {"flowControlSchemas": [schema]},
            },
        });
        self.put(&format!("{name}.yaml"), &object.to_string())
    }

    pub(super) fn remove_cluster(&self, member: &TestCluster) -> anyhow::Result<()> {
        Ok(fs::remove_file(self.folder.join(format!("{}.yaml", member.name())))?)
    }

    /// Sets the limit of requests to the merged view. If `denied` names a user, the merged view also refuses all
    /// requests of this user.
    pub(super) fn put_limit(&self, limit: Limit, denied: Option<&str>) -> anyhow::Result<()> {
        let of_resources = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]});
        let mut policies = Vec::new();
        if let Some(user) = denied {
            let mut rule = of_resources.clone();
            rule["users"] = json!([user]);
            policies.push(json!({"rules": [rule], "deny": {"message": "not today"}}));
        }
        let (mut all, schemas) = match limit {
            Limit::Usual => (
                json!({"flowControlSchemaName": "people"}),
                json!([
                    {"name": "people", "tokenBucket": {"qps": 60, "burst": 120, "limitBy": ["User"]}},
                ]),
            ),
            Limit::AtOnce => (
                json!({"flowControlSchemaName": "at-once"}),
                json!([
                    {"name": "at-once", "maxRequestsInflight": {"max": 12, "limitBy": ["User"], "queueing": {}}},
                ]),
            ),
            Limit::None => (json!({}), json!([])),
        };
        all["rules"] = json!([of_resources]);
        policies.extend([all, json!({"rules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}]})]);
        let object = json!({
            "apiVersion": "tributary.dev/v1alpha1", "kind": "MergedEndpoint", "metadata": {"name": "all"},
            "spec": {
                "dispatchPolicies": policies, "flowControl": {"flowControlSchemas": schemas}, "logging": {"mode": "Enabled"},
            },
        });
        self.put("all.yaml", &object.to_string())
    }

    pub(super) fn token_of(&self, number: usize) -> &str {
        &self.tokens[number]
    }

    /// Writes a new token for a cluster. Returns the name of the Secret to which the previous token is bound. Deleting
    /// that Secret invalidates the previous token.
    pub(super) async fn exchange_token(&mut self, number: usize, member: &TestCluster) -> anyhow::Result<String> {
        self.issued += 1;
        let (secret, token) = issue_token(member, self.issued).await?;
        self.put(&format!("{}.token", member.name()), &token)?;
        Ok(std::mem::replace(&mut self.tokens[number], secret))
    }
}

const SYSTEM: &str = "/api/v1/namespaces/kube-system";

async fn make_account(member: &TestCluster) -> anyhow::Result<()> {
    eventually(SOON, async || member.http().get(SYSTEM).send().await?.expect(200).map(drop)).await?;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "tributary"}});
    member.http().post(&format!("{SYSTEM}/serviceaccounts"), &account).send().await?.expect(201)?;
    let api = "rbac.authorization.k8s.io";
    let binding = json!({
        "apiVersion": format!("{api}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "tributary"},
        "subjects": [{"kind": "ServiceAccount", "name": "tributary", "namespace": "kube-system"}],
        "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": "cluster-admin"},
    });
    member.http().post(&format!("/apis/{api}/v1/clusterrolebindings"), &binding).send().await?.expect(201).map(drop)
}

/// Issues a token that is valid as long as a new Secret exists. Returns the Secret's name and the token.
async fn issue_token(member: &TestCluster, number: usize) -> anyhow::Result<(String, String)> {
    let name = format!("token-{number}");
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}});
    let made = member.http().post(&format!("{SYSTEM}/secrets"), &secret).send().await?.expect(201)?.json()?;
    let bound = json!({"kind": "Secret", "apiVersion": "v1", "name": name, "uid": made["metadata"]["uid"]});
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"expirationSeconds": 7_200, "boundObjectRef": bound},
    });
    let path = format!("{SYSTEM}/serviceaccounts/tributary/token");
    let issued = member.http().post(&path, &request).send().await?.expect(201)?.json()?;
    let token = issued["status"]["token"].as_str().context("no token")?.to_owned();
    Ok((name, token))
}

/// Deletes a Secret, which invalidates the token that is bound to the Secret.
pub(super) async fn revoke_token(member: &TestCluster, secret: &str) -> anyhow::Result<()> {
    member.http().delete(&format!("{SYSTEM}/secrets/{secret}")).send().await?.expect(200).map(drop)
}

/// Compacts all revisions of etcd except the last.
pub(super) async fn compact(member: &TestCluster) -> anyhow::Result<()> {
    let server = format!("http://127.0.0.1:{}", member.forwarded_port());
    let etcd = HttpClient::from_access(&Access { server, ..member.access() }).await?.anonymous();
    let head = etcd.post("/v3/kv/range", &json!({"key": "AA=="})).send().await?.expect(200)?.json()?;
    let revision = head["header"]["revision"].as_str().context("no revision")?;
    let asked = json!({"revision": revision, "physical": true});
    etcd.post("/v3/kv/compaction", &asked).send().await?.expect(200).map(drop)
}

/// Returns for each object in a list the name of its cluster, which the object's data contains.
pub(super) fn homes(list: &Value) -> anyhow::Result<BTreeMap<String, String>> {
    let mut homes = BTreeMap::new();
    for item in list["items"].as_array().context("no items")? {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (name, home) = (text(&item["metadata"]["name"]), text(&item["data"]["home"]));
        let annotated = text(&item["metadata"]["annotations"]["tributary.dev/cluster"]);
        ensure!(annotated == home, "{name} of {home} is told as {annotated}'s");
        ensure!(homes.insert(name.clone(), home).is_none(), "{name} is there twice");
    }
    Ok(homes)
}
