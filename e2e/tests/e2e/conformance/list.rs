//! Cases for lists: contents, versions, pages, selectors, and all combinations of parameters that the server refuses.

use super::{
    Conformance, conformance,
    differences::{LIST_AT_A_FUTURE_VERSION, LIST_AT_A_PLAIN_NUMBER},
    target::{Target, assert_status, names_of, pod, version_of},
};
use anyhow::{Context, ensure};
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub(super) fn cases() -> Vec<Conformance> {
    let mut cases = conformance!["list";
        list_of_an_empty_namespace_has_a_version_and_no_items, list_of_a_namespace_has_all_names_in_order,
        list_of_all_namespaces_has_every_object, items_of_a_list_have_neither_kind_nor_api_version,
        label_selector_by_equality_selects_list_items, label_selector_by_set_selects_list_items,
        field_selector_selects_list_items_by_name_and_namespace, field_selector_selects_pods_by_node_and_phase,
        field_selector_selects_secrets_by_type, list_of_an_unknown_resource_is_404,
        list_of_a_missing_namespace_is_empty, all_pages_of_a_list_are_one_snapshot, pages_have_the_remaining_item_count,
        pages_with_a_selector_have_no_remaining_item_count, list_at_version_zero_ignores_the_limit,
        exact_list_at_the_version_of_a_list_returns_the_same_list, exact_list_at_an_older_version_excludes_later_changes,
        list_with_version_and_limit_is_exact, list_not_older_than_a_version_succeeds,
        list_not_older_than_a_version_has_pages, list_at_a_future_version_is_an_error,
        list_at_a_numeric_version_is_410_if_versions_are_composite, list_at_an_invalid_version_is_400,
        continue_token_works_with_version_zero, list_above_128_kib_is_gzipped, list_below_128_kib_is_not_gzipped,
        unchanged_list_item_keeps_its_version, unknown_and_repeated_list_parameters_are_ignored,
        list_with_a_negative_limit_gets_the_same_status_as_at_the_member,
    ];
    cases.extend(REFUSED.iter().map(|refused| {
        Conformance::new(format!("list::refuses_{}", refused.name), move |target| refuse(target, refused))
    }));
    cases
}

/// Query that the server refuses. `VERSION` stands for the version of a list, and `TOKEN` for a continue token.
struct Refused {
    name: &'static str,
    query: &'static str,
    code: u16,
    reason: &'static str,
    message: &'static str,
}

const INVALID: &str = "ListOptions.meta.k8s.io \"\" is invalid: ";

const REFUSED: [Refused; 12] = [
    Refused {
        name: "exact_at_version_zero",
        query: "resourceVersion=0&resourceVersionMatch=Exact",
        code: 422,
        reason: "Invalid",
        message: INVALID,
    },
    Refused {
        name: "match_without_version",
        query: "resourceVersionMatch=NotOlderThan",
        code: 422,
        reason: "Invalid",
        message: "resourceVersionMatch is forbidden unless resourceVersion is provided",
    },
    Refused {
        name: "unknown_match",
        query: "resourceVersion=VERSION&resourceVersionMatch=Newest",
        code: 422,
        reason: "Invalid",
        message: "supported values",
    },
    Refused {
        name: "match_with_continue",
        query: "resourceVersion=VERSION&resourceVersionMatch=Exact&limit=1&continue=TOKEN",
        code: 422,
        reason: "Invalid",
        message: "resourceVersionMatch is forbidden when continue is provided",
    },
    Refused {
        name: "version_with_continue",
        query: "resourceVersion=VERSION&limit=1&continue=TOKEN",
        code: 400,
        reason: "BadRequest",
        message: "specifying resource version is not allowed when using continue",
    },
    Refused {
        name: "garbage_continue",
        query: "limit=1&continue=garbage",
        code: 400,
        reason: "BadRequest",
        message: "continue",
    },
    Refused {
        name: "send_initial_events",
        query: "sendInitialEvents=true",
        code: 422,
        reason: "Invalid",
        message: "sendInitialEvents is forbidden for list",
    },
    Refused { name: "bad_label_selector", query: "labelSelector=a%20in", code: 400, reason: "BadRequest", message: "" },
    Refused { name: "bad_label_key", query: "labelSelector=-bad-%3Dx", code: 400, reason: "BadRequest", message: "" },
    Refused {
        name: "bad_field_selector",
        query: "fieldSelector=nonsense",
        code: 400,
        reason: "BadRequest",
        message: "",
    },
    Refused {
        name: "unknown_field_label",
        query: "fieldSelector=data.step%3D1",
        code: 400,
        reason: "BadRequest",
        message: "\"data.step\" is not a known field selector",
    },
    Refused { name: "garbage_limit", query: "limit=many", code: 400, reason: "BadRequest", message: "" },
];

async fn refuse(target: Target, refused: &Refused) -> anyhow::Result<()> {
    let mut query = refused.query.to_owned();
    if query.contains("VERSION") || query.contains("TOKEN") {
        target.seed_maps(3).await?;
        let page = target.read(&target.maps("?limit=1")).await?;
        let token = page["metadata"]["continue"].as_str().context("no continue token")?;
        query = query.replace("VERSION", &version_of(&page)).replace("TOKEN", &escape(token));
    }
    let answer = target.http.get(&target.maps(&format!("?{query}"))).send().await?;
    assert_status(&answer, refused.code, Some(refused.reason), refused.message)?;
    Ok(())
}

pub(super) fn escape(text: &str) -> String {
    text.replace('%', "%25").replace('+', "%2B").replace('=', "%3D").replace('/', "%2F")
}

async fn list_of_an_empty_namespace_has_a_version_and_no_items(target: Target) -> anyhow::Result<()> {
    let list = target.read(&target.maps("")).await?;
    ensure!(list["kind"] == "ConfigMapList" && list["apiVersion"] == "v1", "{list}");
    ensure!(list["items"] == json!([]), "{list}");
    ensure!(!version_of(&list).is_empty(), "{list}");
    ensure!(list["metadata"].get("continue").is_none_or(|token| token == ""), "{list}");
    Ok(())
}

async fn list_of_a_namespace_has_all_names_in_order(target: Target) -> anyhow::Result<()> {
    let names = target.seed_maps(7).await?;
    let list = target.read(&target.maps("")).await?;
    ensure!(names_of(&list) == target.in_list_order(&names), "{:?}", names_of(&list));
    Ok(())
}

async fn list_of_all_namespaces_has_every_object(target: Target) -> anyhow::Result<()> {
    let names = target.seed_maps(4).await?;
    let list = target.read("/api/v1/configmaps").await?;
    let items = list["items"].as_array().context("no items")?;
    let ours: Vec<&Value> =
        items.iter().filter(|item| item["metadata"]["namespace"] == target.namespace.as_str()).collect();
    ensure!(ours.len() == names.len(), "{} of {} objects", ours.len(), names.len());
    Ok(())
}

async fn items_of_a_list_have_neither_kind_nor_api_version(target: Target) -> anyhow::Result<()> {
    target.seed_maps(2).await?;
    let list = target.read(&target.maps("")).await?;
    ensure!(list["items"][0].get("kind").is_none() && list["items"][0].get("apiVersion").is_none(), "{list}");
    Ok(())
}

async fn label_selector_by_equality_selects_list_items(target: Target) -> anyhow::Result<()> {
    target.seed_maps(6).await?;
    for (selector, expected) in [("parity%3Dodd", 3), ("parity!%3Dodd", 3), ("parity", 6), ("!parity", 0)] {
        let list = target.read(&target.maps(&format!("?labelSelector={selector}"))).await?;
        ensure!(names_of(&list).len() == expected, "{selector}: {:?}", names_of(&list));
    }
    Ok(())
}

async fn label_selector_by_set_selects_list_items(target: Target) -> anyhow::Result<()> {
    target.seed_maps(6).await?;
    for (selector, expected) in [
        ("parity%20in%20(odd,even)", 6),
        ("parity%20notin%20(odd)", 3),
        ("parity%20in%20(odd),other", 0),
        ("other%20notin%20(x)", 6),
    ] {
        let list = target.read(&target.maps(&format!("?labelSelector={selector}"))).await?;
        ensure!(names_of(&list).len() == expected, "{selector}: {:?}", names_of(&list));
    }
    Ok(())
}

async fn field_selector_selects_list_items_by_name_and_namespace(target: Target) -> anyhow::Result<()> {
    target.seed_maps(4).await?;
    let list = target.read(&target.maps("?fieldSelector=metadata.name%3Dmap-02")).await?;
    ensure!(names_of(&list) == ["map-02"], "{list}");
    let other = format!("?fieldSelector=metadata.namespace!%3D{}", target.namespace);
    ensure!(names_of(&target.read(&target.maps(&other)).await?).is_empty(), "another namespace's");
    let all = format!("/api/v1/configmaps?fieldSelector=metadata.namespace%3D{}", target.namespace);
    ensure!(names_of(&target.read(&all).await?).len() == 4, "of all namespaces");
    Ok(())
}

async fn field_selector_selects_pods_by_node_and_phase(target: Target) -> anyhow::Result<()> {
    for member in &target.members {
        let name = format!("of-{}", member.name());
        member.http().post(&target.core("pods", ""), &pod(&name)).send().await?.expect(201)?;
    }
    let path = target.core("pods", "?fieldSelector=spec.nodeName%3Dno-such-node,status.phase%3DPending");
    crate::context::eventually(super::target::SOON, async || {
        let list = target.read(&path).await?;
        ensure!(names_of(&list).len() == target.members.len(), "{list}");
        Ok(())
    })
    .await?;
    let none = target.read(&target.core("pods", "?fieldSelector=spec.nodeName%3Danother")).await?;
    ensure!(names_of(&none).is_empty(), "{none}");
    let refused = target.http.get(&target.core("pods", "?fieldSelector=spec.image%3Dx")).send().await?;
    assert_status(&refused, 400, Some("BadRequest"), "field label not supported")?;
    Ok(())
}

/// Helm uses this list to read its release records.
async fn field_selector_selects_secrets_by_type(target: Target) -> anyhow::Result<()> {
    let typed = |name: &str, of_type: &str| {
        let labels = json!({"owner": "helm", "name": "r"});
        json!({"apiVersion": "v1", "kind": "Secret", "type": of_type, "metadata": {"name": name, "labels": labels}})
    };
    for (number, member) in target.members.iter().enumerate() {
        for (name, of_type) in [("record", "helm.sh/release.v1"), ("other", "Opaque")] {
            let object = typed(&format!("{name}-{number}"), of_type);
            member.http().post(&target.core("secrets", ""), &object).send().await?.expect(201)?;
        }
    }
    let selected = "?labelSelector=owner%3Dhelm%2Cname%3Dr&limit=100&fieldSelector=type%3Dhelm.sh%2Frelease.v1";
    let metadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let expected: Vec<_> = (0..target.members.len()).map(|number| format!("record-{number}")).collect();
    crate::context::eventually(super::target::SOON, async || {
        let list = target.http.get(&target.core("secrets", selected)).header("accept", metadata);
        let list = list.send().await?.expect(200)?.json()?;
        ensure!(names_of(&list) == expected, "{list}");
        Ok(())
    })
    .await
}

async fn list_of_an_unknown_resource_is_404(target: Target) -> anyhow::Result<()> {
    let answer = target.http.get(&target.core("things", "")).send().await?;
    assert_status(&answer, 404, Some("NotFound"), "the server could not find the requested resource")?;
    Ok(())
}

async fn list_of_a_missing_namespace_is_empty(target: Target) -> anyhow::Result<()> {
    let list = target.read("/api/v1/namespaces/there-is-none/configmaps").await?;
    ensure!(list["items"] == json!([]), "{list}");
    Ok(())
}

/// Reads all pages of the list of the namespace's ConfigMaps. Every request has the parameters `always`, and the first
/// request also has `first`.
async fn pages(target: &Target, always: &str, first: &str, limit: usize) -> anyhow::Result<Vec<Value>> {
    let mut pages = vec![target.read(&target.maps(&format!("?limit={limit}{always}{first}"))).await?];
    while let Some(token) =
        pages.last().and_then(|page| page["metadata"]["continue"].as_str()).filter(|t| !t.is_empty())
    {
        let next = target.maps(&format!("?limit={limit}{always}&continue={}", escape(token)));
        ensure!(pages.len() < 100, "paging does not end");
        pages.push(target.read(&next).await?);
    }
    Ok(pages)
}

async fn all_pages_of_a_list_are_one_snapshot(target: Target) -> anyhow::Result<()> {
    let names = target.seed_maps(11).await?;
    let first = target.read(&target.maps("?limit=4")).await?;
    let token = first["metadata"]["continue"].as_str().context("no continue token")?.to_owned();
    // Changes between the pages must not appear in the later pages.
    target.create_map("zz-later", &[]).await?;
    target.delete_map("map-10").await?;
    let mut all = names_of(&first);
    let mut token = Some(token);
    while let Some(current) = token {
        let page = target.read(&target.maps(&format!("?limit=4&continue={}", escape(&current)))).await?;
        ensure!(version_of(&page) == version_of(&first), "the version changed between pages");
        all.extend(names_of(&page));
        token = page["metadata"]["continue"].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    }
    ensure!(all == target.in_list_order(&names), "{all:?}");
    Ok(())
}

async fn pages_have_the_remaining_item_count(target: Target) -> anyhow::Result<()> {
    target.seed_maps(9).await?;
    let pages = pages(&target, "", "", 4).await?;
    let remaining: Vec<&Value> = pages.iter().map(|page| &page["metadata"]["remainingItemCount"]).collect();
    ensure!(remaining == [&json!(5), &json!(1), &Value::Null], "{remaining:?}");
    Ok(())
}

async fn pages_with_a_selector_have_no_remaining_item_count(target: Target) -> anyhow::Result<()> {
    target.seed_maps(12).await?;
    let pages = pages(&target, "&labelSelector=parity%3Dodd", "", 2).await?;
    let shown: BTreeSet<String> = pages.iter().flat_map(names_of).collect();
    ensure!(shown.len() == 6, "{shown:?}");
    for page in &pages {
        ensure!(page["metadata"]["remainingItemCount"].is_null(), "a count with a selector: {}", page["metadata"]);
    }
    Ok(())
}

async fn list_at_version_zero_ignores_the_limit(target: Target) -> anyhow::Result<()> {
    target.seed_maps(5).await?;
    let list = target.read(&target.maps("?resourceVersion=0&limit=2")).await?;
    ensure!(names_of(&list).len() == 5 && list["metadata"]["continue"].is_null(), "{list}");
    Ok(())
}

async fn exact_list_at_the_version_of_a_list_returns_the_same_list(target: Target) -> anyhow::Result<()> {
    target.seed_maps(5).await?;
    let list = target.read(&target.maps("")).await?;
    let path = target.maps(&format!("?resourceVersion={}&resourceVersionMatch=Exact", version_of(&list)));
    let again = target.read(&path).await?;
    ensure!(again == list, "{again}\ninstead of\n{list}");
    Ok(())
}

async fn exact_list_at_an_older_version_excludes_later_changes(target: Target) -> anyhow::Result<()> {
    target.seed_maps(5).await?;
    let before = target.read(&target.maps("")).await?;
    target.change_map("map-00", "changed").await?;
    target.delete_map("map-01").await?;
    target.create_map("zz-new", &[]).await?;
    let path = target.maps(&format!("?resourceVersion={}&resourceVersionMatch=Exact", version_of(&before)));
    let again = target.read(&path).await?;
    ensure!(again == before, "{again}\ninstead of\n{before}");
    Ok(())
}

async fn list_with_version_and_limit_is_exact(target: Target) -> anyhow::Result<()> {
    let names = target.seed_maps(5).await?;
    let before = target.read(&target.maps("")).await?;
    target.delete_map("map-04").await?;
    let pages = pages(&target, "", &format!("&resourceVersion={}", version_of(&before)), 3).await?;
    ensure!(pages.iter().all(|page| version_of(page) == version_of(&before)), "another version");
    let all: Vec<String> = pages.iter().flat_map(names_of).collect();
    ensure!(all == target.in_list_order(&names), "{all:?}");
    Ok(())
}

async fn list_not_older_than_a_version_succeeds(target: Target) -> anyhow::Result<()> {
    target.seed_maps(3).await?;
    let before = target.read(&target.maps("")).await?;
    target.change_map("map-00", "changed").await?;
    let path = target.maps(&format!("?resourceVersion={}&resourceVersionMatch=NotOlderThan", version_of(&before)));
    ensure!(names_of(&target.read(&path).await?).len() == 3, "not all");
    let plain = target.read(&target.maps(&format!("?resourceVersion={}", version_of(&before)))).await?;
    ensure!(names_of(&plain).len() == 3, "{plain}");
    Ok(())
}

async fn list_not_older_than_a_version_has_pages(target: Target) -> anyhow::Result<()> {
    target.seed_maps(5).await?;
    let before = target.read(&target.maps("")).await?;
    let first = format!("&resourceVersion={}&resourceVersionMatch=NotOlderThan", version_of(&before));
    let pages = pages(&target, "", &first, 2).await?;
    ensure!(pages.len() == 3, "{} pages", pages.len());
    Ok(())
}

async fn list_at_a_future_version_is_an_error(target: Target) -> anyhow::Result<()> {
    let list = target.read(&target.maps("")).await?;
    let future = target.future(&version_of(&list))?;
    let answer = target.http.get(&target.maps(&format!("?resourceVersion={future}"))).send().await?;
    if target.differs(&LIST_AT_A_FUTURE_VERSION) {
        assert_status(&answer, 410, Some("Expired"), "too large resource version")?;
        return Ok(());
    }
    let status = assert_status(&answer, 504, Some("Timeout"), "Too large resource version")?;
    ensure!(status["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge", "{status}");
    ensure!(answer.header("retry-after") == "1", "{:?}", answer.headers);
    Ok(())
}

async fn list_at_a_numeric_version_is_410_if_versions_are_composite(target: Target) -> anyhow::Result<()> {
    let answer = target.http.get(&target.maps("?resourceVersion=5")).send().await?;
    if target.differs(&LIST_AT_A_PLAIN_NUMBER) {
        assert_status(&answer, 410, Some("Expired"), "")?;
    } else {
        answer.expect(200)?;
    }
    Ok(())
}

async fn list_at_an_invalid_version_is_400(target: Target) -> anyhow::Result<()> {
    let answer = target.http.get(&target.maps("?resourceVersion=gar!bage")).send().await?;
    assert_status(&answer, 400, None, "invalid resource version")?;
    Ok(())
}

async fn continue_token_works_with_version_zero(target: Target) -> anyhow::Result<()> {
    target.seed_maps(3).await?;
    let page = target.read(&target.maps("?limit=2")).await?;
    let token = page["metadata"]["continue"].as_str().context("no continue token")?;
    let next = target.read(&target.maps(&format!("?limit=2&resourceVersion=0&continue={}", escape(token)))).await?;
    ensure!(names_of(&next).len() == 1, "{next}");
    Ok(())
}

async fn list_above_128_kib_is_gzipped(target: Target) -> anyhow::Result<()> {
    for index in 0..3 {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("large-{index}")},
            "data": {"text": "x".repeat(70_000)},
        });
        target.http.post(&target.maps(""), &object).send().await?.expect(201)?;
    }
    let answer = target.http.get(&target.maps("")).header("accept-encoding", "gzip").send().await?.expect(200)?;
    ensure!(answer.header("content-encoding") == "gzip", "{:?}", answer.headers);
    ensure!(answer.header("vary").contains("Accept-Encoding"), "{:?}", answer.headers);
    ensure!(answer.body.starts_with(&[0x1f, 0x8b]) && answer.body.len() < 100_000, "{} bytes", answer.body.len());
    let plain = target.http.get(&target.maps("")).send().await?.expect(200)?;
    ensure!(plain.header("content-encoding").is_empty() && plain.body.len() > 200_000, "{:?}", plain.headers);
    Ok(())
}

async fn list_below_128_kib_is_not_gzipped(target: Target) -> anyhow::Result<()> {
    let answer = target.http.get(&target.maps("")).header("accept-encoding", "gzip").send().await?.expect(200)?;
    ensure!(answer.header("content-encoding").is_empty(), "{:?}", answer.headers);
    ensure!(answer.header("content-type") == "application/json", "{:?}", answer.headers);
    ensure!(answer.header("cache-control") == "no-cache, private", "{:?}", answer.headers);
    Ok(())
}

async fn unchanged_list_item_keeps_its_version(target: Target) -> anyhow::Result<()> {
    target.create_map("still", &[]).await?;
    let before = target.read(&target.map("still")).await?;
    target.create_map("other", &[]).await?;
    let list = target.read(&target.maps("")).await?;
    let still =
        list["items"].as_array().and_then(|items| items.iter().find(|item| item["metadata"]["name"] == "still"));
    ensure!(still.map(version_of) == Some(version_of(&before)), "{list}");
    Ok(())
}

async fn unknown_and_repeated_list_parameters_are_ignored(target: Target) -> anyhow::Result<()> {
    target.seed_maps(2).await?;
    // The server ignores unknown parameters, and uses the first value of a repeated parameter.
    let list = target.read(&target.maps("?unknown=1&labelSelector=parity&labelSelector=!parity")).await?;
    ensure!(names_of(&list).len() == 2, "{list}");
    Ok(())
}

async fn list_with_a_negative_limit_gets_the_same_status_as_at_the_member(target: Target) -> anyhow::Result<()> {
    target.seed_maps(2).await?;
    let path = target.maps("?limit=-1");
    let answer = target.http.get(&path).send().await?;
    let own = target.members[0].http().get(&path).send().await?;
    ensure!(answer.status == own.status, "{} instead of {}", answer.status, own.status);
    Ok(())
}
