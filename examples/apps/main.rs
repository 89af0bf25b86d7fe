//! MCP Apps: a view that shows orders and cancels them, after the user was asked:
//! `cargo run --example apps`.

use std::sync::{Arc, Mutex, PoisonError};

use mrtr::{BuildError, Context, Error, Json, Resource, Result, Server, State, Tool};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The URI of the HTML document.
const LIST: &str = "ui://orders/list.html";

#[derive(Clone, Serialize, JsonSchema)]
struct Order {
    number: u32,
    item: String,
    /// The reason why the order was cancelled
    cancelled: Option<String>,
}

/// The result of both tools. The view shows it, and the model reads it.
#[derive(Serialize, JsonSchema)]
struct Orders {
    orders: Vec<Order>,
}

/// A shop, instead of a database.
#[derive(Clone)]
struct Shop(Arc<Mutex<Vec<Order>>>);

impl Shop {
    fn new() -> Self {
        let items = ["A lamp", "Two chairs", "A table"].into_iter().zip(1..);
        let orders =
            items.map(|(item, number)| Order { number, item: item.to_owned(), cancelled: None });
        Self(Arc::new(Mutex::new(orders.collect())))
    }

    fn orders(&self) -> Vec<Order> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Cancels an order. To do it twice is no different from once.
    fn cancel(&self, number: u32, reason: &str) {
        let mut orders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(order) = orders.iter_mut().find(|order| order.number == number) {
            order.cancelled.get_or_insert_with(|| reason.to_owned());
        }
    }
}

async fn orders(State(shop): State<Shop>) -> Json<Orders> {
    Json(Orders { orders: shop.orders() })
}

#[derive(Deserialize, JsonSchema)]
struct Cancellation {
    number: u32,
}

#[derive(Deserialize, JsonSchema)]
struct Reason {
    /// Why do you cancel the order?
    #[schemars(length(min = 1, max = 80))]
    reason: String,
}

/// The view calls this tool. The host asks the user, as in any other call.
async fn cancel_order(
    cx: Context,
    State(shop): State<Shop>,
    Cancellation { number }: Cancellation,
) -> Result<Json<Orders>> {
    let order = shop.orders().into_iter().find(|order| order.number == number);
    let order = order.ok_or_else(|| Error::new(format!("There is no order {number}")))?;
    let question = format!("Cancel order {number} ({})?", order.item);
    let Reason { reason } = cx.elicit("reason", question).await?;
    let cancel = async |_| {
        shop.cancel(number, &reason);
        Ok(())
    };
    cx.step("cancel", cancel).await?;
    Ok(Json(Orders { orders: shop.orders() }))
}

pub fn server() -> Result<Server, BuildError> {
    Server::builder("orders", "1.0.0")
        .resource(Resource::app(LIST, "orders", include_str!("orders.html")))
        .tool(Tool::new("orders", "Lists the orders", orders).app(LIST))
        .tool(Tool::new("cancel_order", "Cancels an order", cancel_order).app(LIST).app_only())
        .state(Shop::new())
        .allow_anonymous()
        .ephemeral_key()
        .build()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().init();
    Ok(mrtr::serve(server()?, "127.0.0.1:3000").await?)
}
