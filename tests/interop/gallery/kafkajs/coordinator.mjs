// A member of group `g` reads the topic and commits after each record, until `last` has come:
// `node coordinator.mjs HOST:PORT TOPIC LAST` prints the values that it got.
import { createRequire } from 'node:module'
import process from 'node:process'

const { Kafka, logLevel } = createRequire(`${process.env.KRAMMAR_NODE_MODULES}/`)('kafkajs')

const [server, topic, last] = process.argv.slice(2)
const kafka = new Kafka({ brokers: [server], logLevel: logLevel.NOTHING, retry: { initialRetryTime: 50 } })
const consumer = kafka.consumer({ groupId: 'g' })
const seen = []
await consumer.connect()
await consumer.subscribe({ topic, fromBeginning: true })
await new Promise((resolve, reject) => {
  consumer.on(consumer.events.CRASH, ({ payload }) => payload.restart || reject(payload.error))
  consumer.run({
    autoCommitThreshold: 1,
    eachMessage: async ({ message }) => {
      seen.push(message.value.toString())
      if (seen.at(-1) === last) resolve()
    },
  })
})
await consumer.disconnect()
console.log(JSON.stringify(seen))
