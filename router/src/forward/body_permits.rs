//! CPU slots for reading a request's body. The body's length decides about one slot. The cost of a conversion from YAML
//! decides about a second slot.

use bytes::Bytes;
use tributary_apimachinery::rewrite::{Format, RequestBody};
use tributary_sharing::flow::fair_semaphore::FairPermit;
use tributary_sharing::flow::large_bodies::{LargeBodies, yaml_conversion_cost};

use tributary_answers::refusal::Refusal;

/// Converts a body from YAML to JSON, and calls `look` with the result in the same CPU slot. `portion` counts the bytes
/// of the YAML, and of the JSON. Cancellation is safe: the wait for a CPU slot ends.
///
/// # Errors
/// 400 for YAML that cannot be converted, 429 if its JSON exceeds the limit of body bytes.
pub(super) async fn convert_with_permits<T>(
    large_bodies: &LargeBodies,
    portion: &mut FairPermit,
    (format, text): (Format, Bytes),
    look: impl Fn(&RequestBody) -> T,
) -> Result<(RequestBody, T), Refusal> {
    let seen = |body: RequestBody| {
        let found = look(&body);
        (body, found)
    };
    let body_permit = large_bodies.body_permit(portion.share_key(), text.len()).await;
    let yaml = match body_permit.run(|| RequestBody::new(format, text).map(seen)) {
        Ok(seen) => return Ok(seen),
        Err(yaml) => yaml,
    };
    let body_permit = large_bodies.body_permit(portion.share_key(), yaml_conversion_cost(yaml.bytes())).await;
    let (body, found) = body_permit.run(|| yaml.convert().map(seen)).map_err(Refusal::malformed)?;
    portion.grow(body.converted().map_or(0, Bytes::len))?;
    Ok((body, found))
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;
    use tributary_sharing::flow::fair_semaphore::{FairSemaphore, ShareMetrics};
    use tributary_sharing::flow::share_key::ShareKey;

    /// Makes 2 KiB of YAML, whose conversion takes as long as the conversion of 128 KiB of JSON.
    fn yaml() -> Bytes {
        format!("x: [{}]\n", "a,".repeat(1 << 10)).into()
    }

    fn reserve_text(max: usize, text: &Bytes) -> FairPermit {
        FairSemaphore::new("bytes", max, ShareMetrics::default()).acquire(ShareKey::Unknown, text.len()).unwrap()
    }

    #[tokio::test]
    async fn expensive_yaml_conversion_waits_for_a_cpu_slot() {
        let large_bodies = LargeBodies::one_at_a_time();
        let occupied = large_bodies.body_permit(ShareKey::Unknown, usize::MAX).await;
        let (text, json) = (yaml(), Bytes::from(format!("{{\"x\":[{}0]}}", "1,".repeat(1 << 10))));
        for format in [Format::Yaml, Format::ApplyYaml] {
            let mut portion = reserve_text(1 << 20, &json);
            let read = convert_with_permits(&large_bodies, &mut portion, (format, json.clone()), |_| ()).now_or_never();
            assert!(read.expect("JSON of this length takes no turn").is_ok());
            let mut portion = reserve_text(1 << 20, &text);
            let read = convert_with_permits(&large_bodies, &mut portion, (format, text.clone()), |_| ()).now_or_never();
            assert!(read.is_none(), "YAML of this length takes a turn");
        }
        drop(occupied);
        let mut portion = reserve_text(1 << 20, &text);
        let (body, ()) = convert_with_permits(&large_bodies, &mut portion, (Format::Yaml, text.clone()), |_| ())
            .now_or_never()
            .unwrap()
            .unwrap();
        assert_eq!(portion.amount(), text.len() + body.converted().unwrap().len(), "text and JSON are held");
    }

    #[tokio::test]
    async fn yaml_whose_json_exceeds_the_byte_limit_is_refused() {
        let (large_bodies, text) = (LargeBodies::one_at_a_time(), yaml());
        // A client may use three eighths of the limit. This is enough for the YAML, but not for the YAML and its JSON.
        let mut portion = reserve_text(text.len() * 4, &text);
        let refused =
            convert_with_permits(&large_bodies, &mut portion, (Format::Yaml, text.clone()), |_| ()).await.unwrap_err();
        assert_eq!(refused.status().code, 429);
        assert_eq!(portion.amount(), text.len());
    }
}
