export default { test: { include: ["connect_redis/index_test.ts", "keyv.suite.mjs"], testTimeout: 30000 } }
