//! Reads a list, or a page of a list, item by item.

use http_body_util::BodyExt;
use tokio::time::timeout;
use tributary_apimachinery::ObjectDecodeError;

use super::failures::{decode_position, opaque_version};
use super::task::{Reflector, ResetRequested};
use crate::list_stream::{ListError, ListMeta, ListParser};
use crate::machine::Input;
use crate::page::{Page, PageError};
use crate::request::chain;
use crate::state::StaleReason;

#[derive(Default)]
struct PageItems {
    count: u32,
    /// The number of items without a resourceVersion.
    unversioned: u32,
    /// The resourceVersion of an item whose resourceVersion is not a number. `None` if there is no such item.
    opaque: Option<String>,
}

impl PageItems {
    /// Returns the resourceVersion that makes the list unusable: a resourceVersion that is not a number, or an empty
    /// text if no item has a resourceVersion. If only some items lack a resourceVersion, these items count as malformed
    /// instead.
    fn opaque_version(&self) -> Option<&str> {
        let is_unversioned = self.count > 0 && self.unversioned == self.count;
        self.opaque.as_deref().or(is_unversioned.then_some(""))
    }
}

impl Reflector {
    /// Reads a page of a list. After the last page, the list replaces the served collection. If the page is cut off,
    /// its items stay in the unfinished collection. This is safe: a repeated page has the same version, and a repeated
    /// list begins with an empty collection.
    pub(super) async fn read_page(&mut self, mut page: Page) -> Result<Input, ResetRequested> {
        let shared = self.shared.clone();
        let tuning = &shared.config.tuning;
        let mut parser = ListParser::new(tuning.object_size_max);
        let mut items = PageItems::default();
        loop {
            let frame = match self.run_until_reset(timeout(tuning.answer_timeout, page.body.frame())).await? {
                Ok(None) => break,
                Ok(Some(Ok(frame))) => frame,
                Ok(Some(Err(error))) => {
                    self.unreachable(&error);
                    return Ok(self.broke_off(&page, items.count));
                }
                Err(_) => {
                    self.response_timed_out(tuning.answer_timeout);
                    return Ok(Input::BrokeOff { read: items.count, late: self.page_time.is_late(page.took()) });
                }
            };
            let Ok(chunk) = frame.into_data() else { continue };
            shared.counts.received_bytes.add(chunk.len());
            let pushed = page.text.push(&chunk, |text| parser.push(text, |item| self.handle_item(item, &mut items)));
            if let Err(error) = pushed {
                return Ok(self.failed(StaleReason::Other(chain(&error))));
            }
            if let Some(version) = &items.opaque {
                return Ok(self.fail_opaque(version));
            }
            if let Some(check_size) = self.check_size(self.staging.bytes()) {
                return Ok(check_size);
            }
            tokio::task::coop::consume_budget().await;
        }
        let rest = page.text.finish(|text| parser.push(text, |item| self.handle_item(item, &mut items)));
        let end = rest.and_then(|()| Ok(parser.finish()?));
        Ok(self.end_page(&page, &items, end))
    }

    /// Handles the end of a page's body: the page is complete, cut off, or not a list.
    fn end_page(&mut self, page: &Page, items: &PageItems, end: Result<ListMeta, PageError>) -> Input {
        if let Some(version) = items.opaque_version() {
            return self.fail_opaque(version);
        }
        match end {
            // A response that repeats the request's continue token would cause the same request forever, without a
            // delay.
            Ok(meta) if page.requested_token.is_some() && meta.continue_token == page.requested_token => {
                self.failed(StaleReason::Other("the list does not advance: its continue token repeats".to_owned()))
            }
            Ok(meta) => {
                self.listed = meta.resource_version;
                let soon = self.page_time.is_soon(page.took());
                if meta.continue_token.is_none() {
                    self.page_time = self.page_time.after_list();
                    self.replace_collection(meta.resource_version);
                }
                Input::PageEnd { more: meta.continue_token, soon }
            }
            Err(PageError::List(ListError::ResourceVersion(invalid))) => self.fail_opaque(&invalid.0),
            Err(error) => {
                let failed = self.failed(StaleReason::Other(chain(&error)));
                let is_cut = matches!(error, PageError::List(ListError::Incomplete(_)));
                if is_cut { self.broke_off(page, items.count) } else { failed }
            }
        }
    }

    /// Handles a page that was cut off after `read` items.
    fn broke_off(&mut self, page: &Page, read: u32) -> Input {
        let late = self.page_time.is_late(page.took());
        self.page_time = self.page_time.after_break(page.took());
        Input::BrokeOff { read, late }
    }

    fn handle_item(&mut self, item: &[u8], items: &mut PageItems) {
        items.count = items.count.saturating_add(1);
        let count = items.count;
        match self.shared.config.decoder.decode(item) {
            Ok(object) => self.staging.put(object),
            Err(error) => match opaque_version(&error) {
                Some(version) => items.opaque = Some(version.to_owned()),
                None => {
                    let lacks_version = matches!(error, ObjectDecodeError::Missing("metadata.resourceVersion"));
                    items.unversioned += u32::from(lacks_version);
                    self.count_skipped(&error, &decode_position(&error), format_args!("list item {count}"));
                }
            },
        }
    }
}
