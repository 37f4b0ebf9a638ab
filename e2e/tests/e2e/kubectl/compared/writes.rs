//! Compares commands that write. The test runs the same script in two namespaces: at the member, and through Tributary.
//! Afterwards both namespaces must have the same objects.

use super::{SHOP, Sides};
use crate::context::{Case, TestContext, cases};
use anyhow::{Context, ensure};
use serde_json::Value;

pub(super) fn cases() -> Vec<Case> {
    cases!["kubectl::compared";
        kubectl_apply_has_the_same_effect_as_at_a_member, kubectl_apply_prune_has_the_same_effect_as_at_a_member,
        kubectl_create_has_the_same_effect_as_at_a_member,
        commands_that_change_objects_have_the_same_effect_as_at_a_member,
        kubectl_replace_and_expose_have_the_same_effect_as_at_a_member,
        strict_validation_errors_match_those_of_a_member,
    ]
}

/// Kinds of objects that the test compares after a script.
const KINDS: &str = "configmaps,secrets,services,serviceaccounts,pods,deployments,replicasets,statefulsets,daemonsets,\
                     jobs,cronjobs,hpa,ingresses,roles,rolebindings,pdb,resourcequotas";

struct Script<'a> {
    files: &'a [(&'a str, &'a str)],
    commands: &'a [&'a str],
}

impl Script<'_> {
    /// Runs the script at the member and through Tributary. Compares the output of each step, and the objects at the
    /// end.
    async fn run(&self, context: TestContext) -> anyhow::Result<()> {
        let sides = Sides::in_two_namespaces(&context).await?;
        for (name, text) in self.files {
            sides.own.file(name, text)?;
            sides.shown.file(name, text)?;
        }
        let mut wrong = Vec::new();
        for command in self.commands {
            // Splits at quotes first, because an argument in quotes may contain spaces.
            let arguments: Vec<&str> =
                command.split('\'').enumerate().flat_map(|(at, part)| words(part, at % 2 == 1)).collect();
            if let Err(error) = sides.same(&arguments).await {
                wrong.push(format!("{error:#}"));
            }
        }
        ensure!(wrong.is_empty(), "{} of {} steps:\n{}", wrong.len(), self.commands.len(), wrong.join("\n\n"));
        same_end(&sides).await
    }
}

fn words(part: &str, quoted: bool) -> Vec<&str> {
    if quoted { vec![part] } else { part.split_whitespace().collect() }
}

/// Compares the objects of both namespaces, without values that differ in every run.
async fn same_end(sides: &Sides) -> anyhow::Result<()> {
    let mut ends: Vec<Vec<Value>> = Vec::new();
    for side in [&sides.own, &sides.shown] {
        let arguments = ["-n", &side.namespace, "get", KINDS, "-o", "json"];
        let text = sides.own.kubectl.ok(&arguments).await?.replace(&side.namespace, "NAMESPACE");
        let mut list: Value = serde_json::from_str(&text).context("read the objects")?;
        strip(&mut list);
        ensure!(!text.contains("tributary.dev/cluster"), "the annotation is stored: {text}");
        ends.push(list["items"].as_array().cloned().context("no items")?);
    }
    for (own, shown) in ends[0].iter().zip(&ends[1]) {
        ensure!(own == shown, "{shown:#}\n--- instead of\n{own:#}");
    }
    ensure!(ends[0].len() == ends[1].len(), "{} objects instead of {}", ends[1].len(), ends[0].len());
    Ok(())
}

/// Removes identities, times and addresses from a value, at any depth.
fn strip(value: &mut Value) {
    const ARBITRARY: [&str; 10] = [
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "time",
        "clusterIP",
        "clusterIPs",
        "managedFields",
        // The Job controller sets these labels to values that differ in every run.
        "batch.kubernetes.io/controller-uid",
        "controller-uid",
        "deletionTimestamp",
    ];
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| !ARBITRARY.contains(&name.as_str()));
            fields.values_mut().for_each(strip);
        }
        Value::Array(items) => items.iter_mut().for_each(strip),
        _ => {}
    }
}

fn changed(text: &str) -> String {
    text.replace("colour: blue", "colour: red").replace("replicas: 2", "replicas: 3").replace("web:1", "web:2")
}

async fn kubectl_apply_has_the_same_effect_as_at_a_member(context: TestContext) -> anyhow::Result<()> {
    let script = Script {
        files: &[("shop.yaml", SHOP), ("changed.yaml", &changed(SHOP))],
        commands: &[
            "diff -f shop.yaml",
            "apply -f shop.yaml --dry-run=server",
            "apply -f shop.yaml",
            "apply -f shop.yaml",
            "diff -f shop.yaml",
            "diff -f changed.yaml",
            "apply -f changed.yaml --dry-run=server",
            "apply -f changed.yaml",
            "apply view-last-applied configmap/settings",
            "apply --server-side -f shop.yaml",
            "apply --server-side --force-conflicts -f shop.yaml",
            "apply --server-side --force-conflicts -f shop.yaml",
            "apply --server-side --field-manager=other -f changed.yaml",
            "delete -f changed.yaml --wait=false --dry-run=server",
            "delete -f changed.yaml --ignore-not-found",
            "get all,configmaps,ingresses",
        ],
    };
    script.run(context).await
}

fn map(name: &str, labels: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, labels: {{{labels}}}}}\ndata: {{name: {name}}}\n---\n"
    )
}

async fn kubectl_apply_prune_has_the_same_effect_as_at_a_member(context: TestContext) -> anyhow::Result<()> {
    let three = ["one", "two", "three"].map(|name| map(name, "app: pruned")).concat();
    let service = "apiVersion: v1\nkind: Service\nmetadata: {name: web, labels: {app: pruned}}\n\
                   spec: {ports: [{port: 80}]}\n---\n";
    let other = map("other", "app: kept");
    let script = Script {
        files: &[("three.yaml", &(three + service)), ("one.yaml", &map("one", "app: pruned")), ("other.yaml", &other)],
        commands: &[
            "apply -f other.yaml",
            "apply -f three.yaml",
            "apply -f one.yaml --prune -l app=pruned --prune-allowlist=core/v1/ConfigMap --dry-run=server",
            "apply -f one.yaml --prune -l app=pruned --prune-allowlist=core/v1/ConfigMap",
            "get configmaps,services -o name",
            "apply -f one.yaml --prune -l app=pruned",
            "get configmaps,services -o name",
        ],
    };
    script.run(context).await
}

async fn kubectl_create_has_the_same_effect_as_at_a_member(context: TestContext) -> anyhow::Result<()> {
    let script = Script {
        files: &[("shop.yaml", SHOP), ("nameless.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {}\n")],
        commands: &[
            "create -f shop.yaml",
            "create -f shop.yaml",
            "create -f nameless.yaml",
            "create configmap made --from-literal=a=b",
            "create configmap made --from-literal=a=b",
            "create configmap tried --from-literal=a=b --dry-run=server -o yaml",
            "create secret generic hidden --from-literal=a=b",
            "create serviceaccount robot",
            "create deployment Wrong_Name --image=x",
            "create deployment made --image=example.test/made:1 --replicas=2 --port=80",
            "create service clusterip made --tcp=80:8080",
            "create job made --image=example.test/made:1",
            "create cronjob made --image=example.test/made:1 --schedule='0 1 * * *'",
            "create job from-cron --from=cronjob/nightly",
            "create ingress made --rule=example.test/=web:80",
            "create role made --verb=get --resource=pods",
            "create rolebinding made --role=made --serviceaccount=default:robot",
            "create poddisruptionbudget made --selector=app=shop --min-available=1",
            "create quota made --hard=configmaps=90",
            "run alone --image=example.test/alone:1",
            "autoscale deployment made --min=1 --max=3",
            "get all,configmaps,ingresses,roles,rolebindings,pdb,quota -o name",
        ],
    };
    script.run(context).await
}

async fn commands_that_change_objects_have_the_same_effect_as_at_a_member(context: TestContext) -> anyhow::Result<()> {
    let script = Script {
        files: &[("shop.yaml", SHOP)],
        commands: &[
            "create -f shop.yaml",
            "label configmap settings size=large",
            "label configmap settings size=small",
            "label configmap settings size=small --overwrite",
            "label configmaps,services --all tier=front",
            "label configmaps -l tier=front tier-",
            "annotate configmap settings note=changed",
            "annotate configmap settings note=changed --overwrite",
            "annotate service web note-",
            "patch configmap settings --type=merge -p '{\"data\":{\"colour\":\"red\"}}'",
            "patch configmap settings --type=merge -p '{\"data\":{\"colour\":\"red\"}}'",
            "patch configmap settings --type=json -p '[{\"op\":\"replace\",\"path\":\"/data/colour\",\"value\":\"green\"}]'",
            "patch configmap settings --type=json -p '[{\"op\":\"test\",\"path\":\"/data/colour\",\"value\":\"red\"}]'",
            "patch configmap settings --type=json -p '[{\"op\":\"remove\",\"path\":\"/data/nothing\"}]'",
            "patch deployment web --type=strategic -p '{\"spec\":{\"template\":{\"spec\":{\"containers\":[{\"name\":\"main\",\"image\":\"example.test/web:7\"}]}}}}'",
            "patch deployment web --subresource=scale --type=merge -p '{\"spec\":{\"replicas\":5}}'",
            "patch configmap settings --type=merge -p '{\"metadata\":{\"name\":\"other\"}}'",
            "patch deployment web --type=merge -p '{\"spec\":{\"replicas\":-1}}'",
            "patch configmap settings --type=merge -p nonsense",
            "set image deployment/web main=example.test/web:8",
            "set env deployment/web COLOUR=blue",
            "set resources deployment/web --limits=cpu=1",
            "set serviceaccount deployment web clerk",
            "set selector service web app=other",
            "scale deployment web --replicas=4",
            "scale deployment web --replicas=1 --current-replicas=9",
            "scale statefulset,deployment --all --replicas=1",
            "rollout pause deployment web",
            "rollout resume deployment web",
            "delete configmap settings --dry-run=server",
            "delete secret keys",
            "delete services,ingresses -l app=shop",
            "delete pods --all",
            "get all,configmaps,secrets,ingresses -o name",
        ],
    };
    script.run(context).await
}

async fn kubectl_replace_and_expose_have_the_same_effect_as_at_a_member(context: TestContext) -> anyhow::Result<()> {
    let one = map("one", "app: replaced");
    let script = Script {
        files: &[
            ("shop.yaml", SHOP),
            ("one.yaml", &one),
            ("changed.yaml", &one.replace("data: {name: one}", "data: {name: another}")),
        ],
        commands: &[
            "replace -f one.yaml",
            "create -f one.yaml --save-config",
            "replace -f changed.yaml",
            "replace -f one.yaml --dry-run=server",
            "replace --force -f changed.yaml",
            "create -f shop.yaml",
            "replace -f shop.yaml",
            "expose deployment web --name=exposed --port=80 --target-port=8080",
            "expose deployment web --name=exposed --port=80",
            "expose service web --name=second --port=81",
            "expose replicaset old --port=82 --type=NodePort --dry-run=server",
            "get services -o custom-columns=NAME:.metadata.name,PORTS:.spec.ports[*].port,SELECTOR:.spec.selector",
        ],
    };
    script.run(context).await
}

async fn strict_validation_errors_match_those_of_a_member(context: TestContext) -> anyhow::Result<()> {
    let unknown = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\ndata: {a: b}\nnonsense: 1\n";
    let script = Script {
        files: &[
            ("unknown.yaml", unknown),
            ("nested.yaml", &SHOP.replace("replicas: 2", "replicas: 2\n  repliccas: 3")),
            ("twice.yaml", &unknown.replace("nonsense: 1", "data: {a: c}")),
            ("type.yaml", &SHOP.replace("replicas: 2", "replicas: many")),
            ("kind.yaml", &unknown.replace("kind: ConfigMap", "kind: Nothing")),
            ("version.yaml", &unknown.replace("apiVersion: v1", "apiVersion: v7")),
        ],
        commands: &[
            "create --validate=strict -f unknown.yaml",
            "create --validate=strict -f nested.yaml",
            "create --validate=strict -f twice.yaml",
            "create --validate=strict -f type.yaml",
            "create --validate=strict -f kind.yaml",
            "create --validate=strict -f version.yaml",
            "create --validate=warn -f unknown.yaml",
            "apply --validate=warn -f nested.yaml",
            "replace --validate=ignore -f unknown.yaml",
            "apply --validate=strict --server-side -f unknown.yaml",
        ],
    };
    script.run(context).await
}
