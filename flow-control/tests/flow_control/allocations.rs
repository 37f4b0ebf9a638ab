//! Tests of the memory that flow control allocates: nothing for an admitted request, little for a waiting request.

use futures::FutureExt;
use tributary_flow_control::{Attributes, Deck, Dimension, Queueing};

use super::{from, one, slots, tenants, tokens};

#[test]
fn admitted_request_of_an_existing_key_allocates_no_memory() {
    let by = [Dimension::User, Dimension::Group, Dimension::Verb, Dimension::Resource];
    let queueing = Some(Queueing::default());
    for kind in [slots(100, &by, queueing), tokens(1_000, 1_000, &by, queueing)] {
        let control = one(kind.clone());
        let schema = tenants(&control);
        let groups = ["system:authenticated".to_owned(), "web".to_owned()];
        let attributes = Attributes { groups: &groups, ..from("ann") };
        let admit = || drop(schema.admit(&attributes).now_or_never().expect("there is room").expect("there is room"));
        admit();
        let allocations = allocation_counter::measure(|| (0..100).for_each(|_| admit()));
        assert_eq!(allocations.count_total, 0, "{kind:?}");
    }
}

/// One user may create thousands of keys with waiting requests, and each key has separate queues.
#[tokio::test(start_paused = true)]
async fn waiting_request_allocates_no_memory_for_empty_queues() {
    const BYTES_MAX: u64 = 8 << 10;
    let queueing = Queueing { deck: Deck::new(1_024, 4).unwrap(), ..Queueing::default() };
    let control = one(slots(1, &[Dimension::User], Some(queueing)));
    let schema = tenants(&control);
    let ann = from("ann");
    let _permit = schema.admit(&ann).await.unwrap();
    let waits = allocation_counter::measure(|| assert!(schema.admit(&ann).now_or_never().is_none(), "it waits"));
    assert!(waits.bytes_max <= BYTES_MAX, "{} bytes", waits.bytes_max);
    assert_eq!(schema.usage().waiting, 0);
}
