// Reads topic `in` in group `g` and writes to `out` in transactions, with kafkajs: `node main.mjs SERVERS COUNT` ends
// after COUNT records.
import { createRequire } from 'node:module'
import process from 'node:process'

const { Kafka, logLevel } = createRequire(`${process.env.KRAMMAR_NODE_MODULES}/`)('kafkajs')

const [server, count] = process.argv.slice(2)
const kafka = new Kafka({ brokers: [server], logLevel: logLevel.NOTHING })
const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1, transactionalId: 'kafkajs' })
const consumer = kafka.consumer({ groupId: 'g' })
let left = Number(count)
await producer.connect()
await consumer.connect()
await consumer.subscribe({ topic: 'in', fromBeginning: true })
await new Promise((resolve, reject) => {
  consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
  consumer.run({
    autoCommit: false,
    eachMessage: async ({ topic, partition, message }) => {
      const transaction = await producer.transaction()
      await transaction.send({ topic: 'out', messages: [{ value: message.value.toString().toUpperCase() }] })
      const partitions = [{ partition, offset: String(Number(message.offset) + 1) }]
      await transaction.sendOffsets({ consumerGroupId: 'g', topics: [{ topic, partitions }] })
      await transaction.commit()
      left -= 1
      if (!left) resolve()
    },
  })
})
await consumer.disconnect()
await producer.disconnect()
