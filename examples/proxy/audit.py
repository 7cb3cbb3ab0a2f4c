"""A proxy that prints who creates and deletes topics: python audit.py HOST:PORT"""

import sys

from kafka_wire import CreateTopicsRequest, CreateTopicsResponse, DeleteTopicsRequest

from krammar.proxy import Exchange, Filter, Proxy, on


class Audit(Filter):
    @on(CreateTopicsRequest, DeleteTopicsRequest)
    def asked(self, request: CreateTopicsRequest | DeleteTopicsRequest, exchange: Exchange) -> None:
        who = f"{exchange.client_id} at {exchange.connection.client}"
        print(f"{who}: {type(request).__name__}", flush=True)

    @on(CreateTopicsResponse)
    def created(self, response: CreateTopicsResponse, exchange: Exchange) -> None:
        for topic in response.topics:
            print(f"topic {topic.name}: error {topic.error_code}", flush=True)


if __name__ == "__main__":
    with Proxy.start(upstream=sys.argv[1], filters=[Audit()]) as proxy:
        print(f"clients connect to {proxy.bootstrap_servers}; Enter ends the proxy", flush=True)
        sys.stdin.readline()
