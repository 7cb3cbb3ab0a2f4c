// What kafkajs does with a broker: `node clients.mjs SCENARIO HOST:PORT TOPIC` prints one JSON value.
import { createRequire } from 'node:module'
import process from 'node:process'

// kafkajs lives in a cache folder, not beside this file.
const { Kafka, CompressionTypes, ConfigResourceTypes, logLevel } = createRequire(
  `${process.env.KRAMMAR_NODE_MODULES}/`
)('kafkajs')

const [scenario, server, topic] = process.argv.slice(2)
const kafka = new Kafka({ clientId: 'interop', brokers: [server], logLevel: logLevel.ERROR })

/** Records from the beginning by a group of its own, `{partition, offset, key, value, headers}`. */
async function readAll(count, options = {}) {
  const consumer = kafka.consumer({ groupId: `${scenario}-reader`, ...options })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  const seen = []
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
    consumer
      .run({
        eachMessage: async ({ partition, message }) => {
          seen.push({
            partition,
            offset: message.offset,
            key: message.key?.toString() ?? null,
            value: message.value?.toString() ?? null,
            headers: Object.fromEntries(
              Object.entries(message.headers ?? {}).map(([name, value]) => [name, value.toString()])
            ),
          })
          if (seen.length === count) resolve()
        },
      })
      .catch(reject)
  })
  await consumer.disconnect()
  return seen
}

function messages(count, name) {
  return Array.from({ length: count }, (_, index) => ({
    key: index % 5 ? `key ${index}` : null,
    value: `${name} ${index} `.repeat(10),
    headers: { index: String(index) },
    partition: index % 2,
  }))
}

const scenarios = {
  async plain() {
    const producer = kafka.producer()
    await producer.connect()
    await producer.send({ topic, acks: -1, messages: messages(200, 'plain') })
    await producer.disconnect()
    return readAll(200)
  },

  async gzip() {
    const producer = kafka.producer()
    await producer.connect()
    const batch = { topic, messages: messages(200, 'gzip') }
    await producer.send({ ...batch, compression: CompressionTypes.GZIP })
    await producer.disconnect()
    return readAll(200)
  },

  async idempotent() {
    const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
    await producer.connect()
    for (let turn = 0; turn < 10; turn++) {
      await producer.send({ topic, messages: messages(20, `turn ${turn}`) })
    }
    await producer.disconnect()
    return readAll(200)
  },

  async transactions() {
    const producer = kafka.producer({
      transactionalId: `${topic}-tx`,
      idempotent: true,
      maxInFlightRequests: 1,
    })
    await producer.connect()
    for (const end of ['commit', 'abort', 'commit']) {
      const transaction = await producer.transaction()
      await transaction.send({ topic, messages: messages(20, end) })
      await transaction.sendOffsets({
        consumerGroupId: `${topic}-offsets`,
        topics: [{ topic, partitions: [{ partition: 0, offset: end === 'abort' ? '99' : '7' }] }],
      })
      await transaction[end]()
    }
    await producer.disconnect()
    const admin = kafka.admin()
    await admin.connect()
    const [stored] = await admin.fetchOffsets({ groupId: `${topic}-offsets`, topics: [topic] })
    await admin.disconnect()
    return { read: await readAll(40), stored: stored.partitions }
  },

  async group() {
    const producer = kafka.producer()
    await producer.connect()
    const owned = [new Set(), new Set()]
    const seen = []
    const members = owned.map(() =>
      kafka.consumer({ groupId: `${topic}-group`, sessionTimeout: 10000, heartbeatInterval: 200 })
    )
    const both = new Promise((resolve) => {
      const assigned = members.map(() => 0)
      members.forEach((member, index) =>
        member.on(member.events.GROUP_JOIN, ({ payload }) => {
          assigned[index] = payload.memberAssignment[topic]?.length ?? 0
          if (assigned.every((count) => count === 1)) resolve()
        })
      )
    })
    for (const [index, member] of members.entries()) {
      await member.connect()
      await member.subscribe({ topic, fromBeginning: true })
      await member.run({
        eachMessage: async ({ partition, message }) => {
          owned[index].add(partition)
          seen.push(message.value.toString())
        },
      })
    }
    await both
    await producer.send({ topic, messages: messages(100, 'group') })
    while (new Set(seen).size < 100) await new Promise((resolve) => setTimeout(resolve, 20))
    const admin = kafka.admin()
    await admin.connect()
    const described = (await admin.describeGroups([`${topic}-group`])).groups[0]
    for (const member of members) await member.disconnect()
    const [stored] = await admin.fetchOffsets({ groupId: `${topic}-group`, topics: [topic] })
    const after = (await admin.describeGroups([`${topic}-group`])).groups[0]
    await admin.deleteGroups([`${topic}-group`])
    const left = (await admin.listGroups()).groups.map(({ groupId }) => groupId)
    await admin.disconnect()
    await producer.disconnect()
    return {
      seen: seen.length,
      owned: owned.map((partitions) => [...partitions].sort()),
      state: described.state,
      members: described.members.length,
      after: after.state,
      stored: stored.partitions.map(({ partition, offset }) => [partition, offset]).sort(),
      left: left.includes(`${topic}-group`),
    }
  },

  async admin() {
    const admin = kafka.admin()
    await admin.connect()
    const name = `${topic}-made`
    const made = await admin.createTopics({
      topics: [
        { topic: name, numPartitions: 2, configEntries: [{ name: 'retention.ms', value: '1234567' }] },
      ],
    })
    const twice = await admin.createTopics({ topics: [{ topic: name }] })
    await admin.createPartitions({ topicPartitions: [{ topic: name, count: 3 }] })
    const { topics } = await admin.fetchTopicMetadata({ topics: [name] })
    const producer = kafka.producer()
    await producer.connect()
    await producer.send({ topic: name, messages: messages(20, 'admin') })
    await producer.disconnect()
    await admin.deleteTopicRecords({ topic: name, partitions: [{ partition: 0, offset: '4' }] })
    const offsets = await admin.fetchTopicOffsets(name)
    await admin.alterConfigs({
      validateOnly: false,
      resources: [
        {
          type: ConfigResourceTypes.TOPIC,
          name,
          configEntries: [{ name: 'cleanup.policy', value: 'compact' }],
        },
      ],
    })
    const { resources } = await admin.describeConfigs({
      includeSynonyms: false,
      resources: [{ type: ConfigResourceTypes.TOPIC, name }],
    })
    const configs = Object.fromEntries(
      resources[0].configEntries.map(({ configName, configValue }) => [configName, configValue])
    )
    await admin.setOffsets({
      groupId: `${topic}-set`,
      topic: name,
      partitions: [{ partition: 0, offset: '5' }],
    })
    const [set] = await admin.fetchOffsets({ groupId: `${topic}-set`, topics: [name] })
    await admin.deleteTopics({ topics: [name] })
    const cluster = await admin.describeCluster()
    const left = await admin.listTopics()
    await admin.disconnect()
    return {
      made,
      twice,
      partitions: topics[0].partitions.length,
      offsets: offsets.map(({ partition, low, high }) => [partition, low, high]).sort(),
      cleanup: configs['cleanup.policy'],
      retention: configs['retention.ms'],
      set: set.partitions.find(({ partition }) => partition === 0).offset,
      left: left.includes(name),
      brokers: cluster.brokers.length,
      controller: cluster.controller,
    }
  },
}

try {
  console.log(JSON.stringify(await scenarios[scenario]()))
  process.exit(0)
} catch (error) {
  console.error(error)
  process.exit(1)
}
